"""A run whose rows hold what a row of metrics.jsonl can: a made curve for each number, the same for a seed.

write_measured_run(tmp_path / "mine", steps=60); rows = measured_rows(60, seed=1)
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raypoly import Run
from tests.support.finished_run import write_finished_run

STAGES = ("generate", "score", "judge", "learn", "sync")
HOSTILE_NAME = "objective/<img src=x onerror=alert(1)>\u202e"


def measured_rows(steps: int, arm: str = "grpo", seed: int = 0) -> list[dict[str, Any]]:
    """Rewards begin below 0; the judge's agreement is known at every fifth step alone."""
    draw = random.Random(f"{arm} {seed}")
    return [_row(step, step / steps, draw) for step in range(steps)]


def write_measured_run(folder: Path, *overrides: str, steps: int = 60, seed: int = 0, objective: str = "grpo") -> Path:
    """Returns the folder of a run that has done so many steps, evaluated four times."""
    own = (f"train.seed={seed}", f"train.steps={steps}", *overrides)
    path = write_finished_run(folder, objective, True, *own)
    write_rows(path, measured_rows(steps, objective, seed))
    return path


def two_arms(write: Callable[[str, int], Path | str]) -> list[Run]:
    """Two runs each of two arms; `write` takes an arm and a seed, and returns the run's folder."""
    return [Run(write(arm, seed)) for arm in ("grpo", "poly_epo") for seed in (0, 1)]


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _row(step: int, done: float, draw: random.Random) -> dict[str, Any]:
    def about(value: float, spread: float) -> float:
        return value + draw.gauss(0, spread)

    seconds = {stage: abs(about(2.0 + place, 0.4)) for place, stage in enumerate(STAGES)}
    return {
        "step": step,
        "reward": about(-0.4 + 1.1 * done, 0.08),
        "strategies": about(2.2 + done, 0.1), "strategies_structural": about(2 + done, 0.1),
        "strategies_correct": about(1 + done, 0.1), "strategies_correct_judged": about(1.1 + done, 0.1),
        "zero_advantage": min(1.0, abs(about(0.2, 0.05))), "loss": about(0.02, 0.01),
        "grad_norm": abs(about(1.2, 0.3)), "lr": 3e-4 * min(1.0, step / 10 + 0.1), "clipped": int(step % 3 == 0),
        "clip_share": 0.3 + 0.1 * math.sin(step / 5), "entropy": about(0.9 - 0.5 * done, 0.02),
        "mismatch_max": abs(about(0.4, 0.1)), "mismatch_mean": abs(about(0.012, 0.001)),
        "mismatch_k1": about(0.0004, 0.0002), "mismatch_k3": abs(about(0.0009, 0.0002)),
        "importance_mean": about(1, 0.001), "importance_ess": about(0.99, 0.002), "importance_truncated": 0.0,
        "tokens_masked": 0.0, "ratio_clipped_low": abs(about(0.02, 0.004)),
        "ratio_clipped_high": abs(about(0.03, 0.004)),
        "kl_reference": abs(about(0.2 * done, 0.01)), "probe_mean": None, "rows": 64, "response_tokens": 64 * 310,
        "response_length": about(310 - 80 * done, 9), "truncated": abs(about(0.08, 0.02)),
        "tokens_per_second": about(4300, 150), "judge_agreement": 0.9 if step % 5 == 0 else None,
        "statuses": {"passed": 20 + step % 7, "wrong": 40, "error": 4}, "paused_seconds": 0.0,
        "seconds": {**seconds, "total": sum(seconds.values())}, "exposed": {**seconds, "idle": 0.1},
        "tail": {"seconds": 0.2, "exposed": 0.1}, "weight_digest": f"{step:064x}",
        "objective/mi_reward": about(0.1, 0.02), HOSTILE_NAME: float(step),
    }  # fmt: skip
