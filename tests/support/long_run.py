"""Write the folder of a finished run of any length with the product's own writers, without a model and without Ray.

write_long_run(tmp_path / "grpo-s0", steps=250, groups=8, rollouts=32)          # 64,000 rollouts
write_long_run(tmp_path / "poly-s0", "poly_epo", gain=0.3, weights="c0ffee")
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from raypoly.analysis.evaluation.evaluation_results import problem_outcome, sample_table
from raypoly.analysis.metrics.pass_at_k import summarise
from raypoly.core.settings import load
from raypoly.core.values import Evidence, Group, Labels, Rollout, Verdict
from raypoly.run.run_identity import resolve_run
from raypoly.run.store.catalogue import evaluation_key, step_key
from raypoly.run.store.rollout_files import encode_evaluation, encode_step
from raypoly.run.store.sealed_files import seal
from raypoly.run.store.step_records import Applied, CompletedStep
from tests.support.finished_run import write_summary

HIDDEN = "# \u202eadmin\u2069 \u200b \x1b[31m </script><!-- <b>bold</b> \ud800"
"""Bidirectional and zero-width marks, a terminal escape, HTML, half a character."""
SHOWN = r"# \u202eadmin\u2069 \u200b \x1b[31m </script><!-- <b>bold</b> \ud800"
"""The same as a page shows it."""
_WAYS = ("for", "recursion", "builtin", "comprehension")


def write_long_run(
    folder: Path,
    objective: str = "grpo",
    *overrides: str,
    steps: int = 4,
    groups: int = 2,
    rollouts: int = 4,
    tests: int = 12,
    gain: float = 0.2,
    weights: str = "beef",
    problem_set: str = "f00d",
) -> Path:
    """Returns the folder. Test problems are passed with a chance that grows by `gain` in training; `weights` are those
    that the run began with."""
    own = [f"run.dir={folder}", f"objective.name={objective}", f"train.steps={steps}", f"train.rollouts={rollouts}"]
    directory = resolve_run(load(None, [*own, f"train.prompts_per_step={groups}", *overrides], lambda text: None))
    store, lease = directory.open("test", problems=problem_set)
    draw = random.Random(f"{objective} {directory.config.train.seed}")
    rows = []
    for step in range(steps):
        made = tuple(_group(draw, step, slot, f"task-{draw.randrange(100)}", rollouts, 0.3) for slot in range(groups))
        rewards = tuple(np.array([float(v.passed) for v in group.verdicts or ()]) for group in made)
        rows.append({"step": step, "reward": float(np.mean(rewards)), "strategies": 2.0, "strategies_correct": 1.0,
                     "seconds": {"total": 2.0}, "weight_digest": f"{step:064x}"})  # fmt: skip
        applied = Applied(step, f"{step:064x}", rows[-1], groups)
        advantages = tuple(row - row.mean() for row in rewards)
        store.commit(step_key(step), encode_step(CompletedStep(step, made, rewards, advantages, applied)))
    store.put_mutable("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    evaluations = []
    for step, chance, digest in ((0, 0.2, weights), (steps, 0.2 + gain, f"{steps:064x}")):
        found = [_group(draw, step, i, f"test-{i}", 8, chance) for i in range(tests)]
        payload = {
            "step": step, "split": "test", "samples": 8, "problems": tests, "problem_set": problem_set,
            "weights": digest, "raypoly": "0.1.0", **summarise([problem_outcome(group) for group in found]),
        }  # fmt: skip
        table: pa.Table = sample_table(
            [_without_half_characters(group) for group in found], {group.problem_id: {} for group in found}
        )
        store.commit(evaluation_key(step, "test"), encode_evaluation(step, "test", payload, table))
        evaluations.append(payload)
    summary = {"objective": objective, "seed": directory.config.train.seed, "steps": steps, "state": "finished"}
    store.put_mutable("summary.json", seal({**summary, "evaluations": evaluations}))
    lease.release()
    return directory.path


def as_planned(folder: Path) -> Path:
    """The run as if the scaffold `tuple` had drawn the samples of its last evaluation. Returns the folder."""
    summary = json.loads((folder / "summary.json").read_text())
    of_program = {
        "scaffold": "tuple", "block": 2, "decoded_tokens": {"plan": 80.0, "solve": 320.0}, "duplicates": 0.25,
        "pass_per_10k": {"1": 50.0, "4": 25.0, "8": 20.0}, "followed": 0.9, "surface_diversity": 0.8,
    }  # fmt: skip
    summary["evaluations"][-1] |= of_program
    write_summary(folder, summary)
    return folder


def _group(draw: random.Random, step: int, slot: int, problem: str, size: int, chance: float) -> Group:
    ways = [draw.choice(_WAYS) for _ in range(size)]
    passed = [draw.random() < chance for _ in range(size)]
    tokens = np.arange(4, dtype=np.int32)
    rollouts = tuple(
        Rollout(tokens, tokens, np.zeros(4, np.float32), _program(draw, way), "stop", draw.getrandbits(32), step)
        for way in ways
    )
    verdicts = tuple(
        Verdict("passed" if good else "wrong", 3 if good else 1, 3, 0.01, "" if good else f"test 2: f({HIDDEN}) gave 1",
                Evidence(way, (way,), {way: 1.0}, way))
        for way, good in zip(ways, passed, strict=True)
    )  # fmt: skip
    labels = Labels(np.array([_WAYS.index(way) + 1 for way in ways], np.int32), np.zeros(size, np.bool_), "structural")
    return Group(step, slot, problem, rollouts, {"score": verdicts, "judge": labels})


def _program(draw: random.Random, way: str) -> str:
    lines = "".join(f"    total += values[{draw.randrange(1000)}]  # {way}\n" for _ in range(draw.randrange(4, 20)))
    return f"def f(values):\n    {HIDDEN}\n    total = 0\n{lines}    return total\n"


def _without_half_characters(group: Group) -> Group:
    """As it is in a file."""

    def clean(text: str) -> str:
        return text.encode("utf-8", "backslashreplace").decode()

    rollouts = tuple(Rollout(**{**vars(each), "text": clean(each.text)}) for each in group.rollouts)
    verdicts: Any = tuple(Verdict(**{**vars(each), "detail": clean(each.detail)}) for each in group.verdicts or ())
    return Group(group.step, group.slot, group.problem_id, rollouts, {**group.findings, "score": verdicts})
