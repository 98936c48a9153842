"""A run folder of thousands of steps, written by the parts that write real ones; no model, no Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from raypoly.core.config import Config
from raypoly.core.settings import load
from raypoly.core.values import STATUSES, Evidence, Group, Labels, Rollout, Verdict
from raypoly.run.run_identity import resolve_run
from raypoly.run.sinks import MetricsFile
from raypoly.run.store import Store
from raypoly.run.store.local_store import Disk, LocalStore
from raypoly.run.store.step_records import Applied, CompletedStep
from tests.support.saved_checkpoint import save_checkpoint
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.history import History

EVALUATE_EVERY = 100
CHECKPOINT_EVERY = 10


class NoSync(Disk):
    """Leaves it to the system when what was written reaches the disk: nobody needs this run after a power cut."""

    def sync(self, file: BinaryIO) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


def config_of(folder: Path, steps: int, overrides: Sequence[str] = ()) -> Config:
    own = [f"run.dir={folder}", f"train.steps={steps}", f"train.checkpoint_every={CHECKPOINT_EVERY}"]
    return load(None, [*own, f"evaluate.every={EVALUATE_EVERY}", *overrides], lambda text: None)


def blank(checkpoints: Checkpoints, step: int) -> None:
    """A checkpoint that can be opened, of a model of zeros."""
    save_checkpoint(checkpoints, step, {"model.safetensors": bytes(1 << 20)})


def make(
    folder: Path,
    steps: int,
    groups: int,
    size: int,
    tokens: int,
    overrides: Sequence[str] = (),
    save: Callable[[Checkpoints, int], None] = blank,
) -> None:
    """`steps` completed steps of `groups` groups of `size` rollouts of `tokens` tokens, evaluated, with the last
    checkpoint by `save`."""
    store: Store
    store, lease = resolve_run(config_of(folder, 2 * steps, overrides)).open("benchmark")
    store = LocalStore(folder, NoSync())
    history, checkpoints = History(store), Checkpoints(store, lease)
    metrics = MetricsFile(folder / "metrics.jsonl")
    rng = np.random.default_rng(0)
    template = [_group(rng, slot, size, tokens) for slot in range(groups)]
    numbers = [rng.random(size) for _ in range(groups)]
    for step in range(steps):
        row = _row(step)
        made = tuple(replace(group, step=step) for group in template)
        applied = Applied(step, f"{step:064x}", row, groups)
        history.add(CompletedStep(step, made, tuple(numbers), tuple(numbers), applied))
        metrics.log(row)
        if (step + 1) % EVALUATE_EVERY == 0:
            history.add_evaluation(step + 1, "validation", _results(step + 1), pa.table({"status": ["passed"] * 512}))
        if (step + 1) % CHECKPOINT_EVERY == 0:
            if step + 1 > steps - CHECKPOINT_EVERY:
                save(checkpoints, step + 1)
            history.index_before(step + 1)
    metrics.close()
    lease.release()


def _group(rng: np.random.Generator, slot: int, size: int, tokens: int) -> Group:
    evidence = Evidence("def f(n):\n return n", ("for",), {"for": 40.0}, "for", ("depth_1",))
    rollouts = tuple(
        Rollout(
            prompt_tokens=rng.integers(0, 480, 30).astype(np.int32),
            tokens=rng.integers(0, 480, tokens).astype(np.int32),
            logprobs=-rng.random(tokens).astype(np.float32),
            text="".join(map(chr, rng.integers(97, 123, 3 * tokens))),
            finish_reason="stop",
            seed=int(rng.integers(2**62)),
            weight_version=0,
        )
        for _ in range(size)
    )
    statuses = rng.choice(STATUSES[:2], size)
    verdicts = tuple(Verdict(str(status), 4, 4, 0.01, evidence=evidence) for status in statuses)  # type: ignore[arg-type]
    labels = Labels(rng.integers(1, 4, size).astype(np.int32), np.zeros(size, np.bool_), "structural-1")
    return Group(0, slot, f"puzzle/{slot}", rollouts, {"score": verdicts, "judge": labels})


def _row(step: int) -> Mapping[str, Any]:
    """As wide as a real one."""
    rng = np.random.default_rng(step)
    judge = {f"count_{place}": float(value) for place, value in enumerate(rng.random(16))}
    return {
        "step": step,
        "time": "2026-01-01T00:00:00+00:00",
        **{f"number_{place}": float(value) for place, value in enumerate(rng.random(16))},
        "statuses": {"passed": 100, "wrong": 150, "error": 6},
        "seconds": {stage: float(rng.random()) for stage in ("generate", "score", "judge", "learn", "sync", "total")},
        "clipped": 0,
        "pauses": [],
        "judge": judge,
        "weight_digest": f"{step:064x}",
    }


def _results(step: int) -> Mapping[str, Any]:
    curve = {str(k): 0.5 for k in (1, 2, 4, 8, 16, 32, 64)}
    return {"step": step, "split": "validation", "samples": 8, "problems": 64, "pass_at_k": curve, "seconds": 1.0}
