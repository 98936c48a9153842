"""The step whose cost the benchmark shows is whole, and the command says what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.rollout_files import RolloutFiles
from tests.support.driver_cost import measure_driver
from tests.support.driver_process import ROOT


def test_the_step_is_whole(tmp_path: Path) -> None:
    cost = measure_driver(tmp_path, groups=4, rollouts=8, scorers=3, tokens=50)
    assert (cost.rollouts, cost.cpu_ms) == (32, 1000 * cost.cpu / 32)
    assert cost.peak >= cost.before > 0
    step = RolloutFiles(LocalStore(tmp_path)).step(0)
    rollouts = [rollout for group in step.groups for rollout in group.rollouts]
    assert [len(rollout.tokens) for rollout in rollouts] == [len(rollout.logprobs) for rollout in rollouts] == 32 * [50]
    assert all(verdict.evidence for group in step.groups for verdict in group.verdicts or ())
    assert all(group.labels is not None and group.labels.known for group in step.groups)
    assert all(advantages.any() for advantages in step.advantages)
    assert step.applied.metrics["response_tokens"] == 32 * 50


def test_the_command_measures_three_sizes() -> None:
    sizes = ("--groups", "16", "--rollouts", "8", "--scorers", "5", "--tokens", "20", "--json")
    done = subprocess.run([sys.executable, "-m", "benchmarks.driver", *sizes], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode in (0, 1), done.stderr  # so small a step is mostly overhead
    assert [one["rollouts"] for one in json.loads(done.stdout)] == [16, 32, 128]
