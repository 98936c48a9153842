"""Write the folder of a short finished run with the product's own writers, without a model and without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from raypoly.core.settings import load
from raypoly.core.values import Evidence, Group, Labels, Rollout, Verdict
from raypoly.run.run_identity import RunDirectory, resolve_run
from raypoly.run.sinks import MetricsFile
from raypoly.run.store.catalogue import step_key
from raypoly.run.store.rollout_files import encode_step
from raypoly.run.store.sealed_files import seal
from raypoly.run.store.step_records import Applied, CompletedStep

HOSTILE = "</pre><script>alert('run me')</script>"
STEPS = 12


def write_finished_run(folder: Path, objective: str = "poly_epo", finished: bool = True, *overrides: str) -> Path:
    """Write a run of twelve steps, evaluated at 0, 4, 8 and 12 and paused once. Returns its folder."""
    return fill_run(str(folder), objective, finished, *overrides).path


def fill_run(place: str, objective: str = "poly_epo", finished: bool = True, *overrides: str) -> RunDirectory:
    """Write that run at a path or a URI."""
    own = [f"run.dir={place}", f"objective.name={objective}", f"train.steps={STEPS}", "evaluate.every=4"]
    directory = resolve_run(load(None, [*own, *overrides], lambda text: None))
    store, lease = directory.open("test")
    store.workspace.mkdir(parents=True, exist_ok=True)
    metrics = MetricsFile(store.workspace / "metrics.jsonl")
    for step in range(STEPS):
        row = metrics_row(step)
        metrics.log(row)
        store.commit(
            step_key(step), encode_step(CompletedStep(step, (_group(step),), *_numbers(), _applied(step, row)))
        )
    metrics.close()
    if directory.location.folder is None:
        store.put_mutable("metrics.jsonl", (store.workspace / "metrics.jsonl").read_bytes())
    if finished:
        store.put_mutable("summary.json", seal(summary(objective)))
    lease.release()
    return directory


def write_summary(folder: Path, values: Mapping[str, Any]) -> None:
    """Write a run's summary.json, with a seal of its own."""
    plain = {key: value for key, value in values.items() if key not in ("schema", "sha256")}
    (folder / "summary.json").write_bytes(seal(plain))


def metrics_row(step: int) -> dict[str, Any]:
    """One row of metrics.jsonl, as the workflow writes it."""
    return {
        "step": step,
        "time": f"2026-11-21T10:00:{step:02d}+00:00",
        "reward": 0.2 + 0.03 * step + 0.05 * (step % 3),
        "strategies": 1.4 + 0.05 * step,
        "strategies_correct": 0.6 + 0.04 * step,
        "zero_advantage": 0.3,
        "grad_norm": 1.7,
        "lr": 3e-4,
        "clipped": 1,
        "tokens_per_second": 4321.0,
        "seconds": {"generate": 1.0, "score": 0.4, "judge": 0.1, "learn": 0.5, "sync": 0.1, "total": 1.6},
        "exposed": {"generate": 1.0, "learn": 0.3, "judge": 0.05, "score": 0.1, "sync": 0.1, "idle": 0.05},
        "tail": {"seconds": 0.2, "exposed": 0.08},
        "statuses": {"passed": 3, "wrong": 4, "error": 1},
    }


def summary(objective: str) -> dict[str, Any]:
    """The content of summary.json, as the workflow writes it."""
    evaluations = []
    for step in (0, 4, 8, 12):
        gain = step / 40
        pass_at_k = {str(2**i): min(0.25 + gain + 0.11 * i, 0.97) for i in range(7)}
        entry = {
            "step": step,
            "pass_at_k": pass_at_k,
            "strategies_correct": 1.1 + gain,
            "strategies_correct_judge": 1.3 + gain,
        }
        evaluations.append({**entry, "split": "validation", "samples": 16})
        if step in (0, 12):
            evaluations.append({**entry, "split": "test", "samples": 128})
    return {
        "objective": objective,
        "seed": 0,
        "steps": STEPS,
        "evaluations": evaluations,
        "stage_seconds": {"generate": 40.0, "score": 12.5, "total": 61.0},
        "pauses": [
            {"since": "2026-11-21T10:00:05+00:00", "seconds": 61.2, "reason": "the judge <refuses> connections"}
        ],
    }


def _group(step: int) -> Group:
    texts = (" return sum(range(n))\n", f" return '{HOSTILE}'\n")
    tokens = np.arange(3, dtype=np.int32)
    rollouts = tuple(
        Rollout(tokens, tokens, np.full(3, -0.5, np.float32), text, "stop", seed, step)
        for seed, text in enumerate(texts)
    )
    verdicts = (
        Verdict("passed", 3, 3, 0.01, "", Evidence("return sum(range(n))", ("sum",), {"sum": 4.0}, "builtin")),
        Verdict("wrong", 1, 3, 0.01, f"f(3) gave {HOSTILE}", Evidence("return x", (), {}, "")),
    )
    labels = Labels(np.array([1, 2], np.int32), np.zeros(2, np.bool_), "structural")
    return Group(step, 0, "sum-to-n", rollouts, {"score": verdicts, "judge": labels})


def _numbers() -> tuple[Any, Any]:
    return (np.array([1.0, 0.0]),), (np.array([0.5, -0.5]),)


def _applied(step: int, row: dict[str, Any]) -> Applied:
    return Applied(step, f"{step:064x}", row, 1)
