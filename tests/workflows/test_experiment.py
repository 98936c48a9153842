"""An experiment of real trainings, killed in both of its places, ends by the same command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from raypoly.analysis.experiments.experiment_config import load_experiment
from raypoly.analysis.experiments.planned_runs import PlannedRun, plan_runs
from raypoly.analysis.experiments.run_queue import is_held
from tests.support.local_driver import ROOT, SMALL, wait_for
from tests.support.ray_machines import Machines

ARMS = """
arms:
  grpo: {objective.name: grpo, steps: 2}
  poly_epo: {objective.name: poly_epo, steps: 2}
"""


def holder(run: PlannedRun) -> int:
    """The process that trains it; 0 before it says so."""
    lease = run.place / "lease.json"
    return int(json.loads(lease.read_text())["pid"]) if lease.exists() else 0


@pytest.fixture
def runs(warm_model: Path, tmp_path: Path) -> Iterator[list[PlannedRun]]:
    """grpo-s0 and poly_epo-s0; no training of theirs outlives the test."""
    own = ["train.checkpoint_every=1", "evaluate.every=2", "evaluate.samples=8", "evaluate.validation_samples=8"]
    model = [f"model.path={warm_model}", "generator.engine=transformers"]
    (tmp_path / "mine.yaml").write_text(ARMS)
    runs = plan_runs(load_experiment(tmp_path / "mine.yaml"), tmp_path / "out", [*shared(), *own, *model])
    (tmp_path / "words.json").write_text(json.dumps([*shared(), *own, *model]))
    yield runs
    for run in runs:
        if is_held(run):
            with suppress(ProcessLookupError):
                os.kill(holder(run), signal.SIGKILL)


def shared() -> list[str]:
    """The small run's overrides, but for those that an arm sets."""
    return [text for text in SMALL if not text.startswith(("train.steps=", "evaluate.every="))]


def start(folder: Path, machines: Machines) -> subprocess.Popen[str]:
    words = json.loads((folder / "words.json").read_text())
    command = [sys.executable, "-m", "raypoly.cli", "experiment", "--config", str(folder / "mine.yaml")]
    command += ["--out", str(folder / "out"), *words]
    ours = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") or k.startswith("RAY_AUTH_")}
    with (folder / "experiment.log").open("a") as log:
        return subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=log, text=True, env=ours | {"RAY_ADDRESS": machines.address}
        )


@pytest.mark.slow
def test_a_killed_experiment_and_a_killed_training_of_it_go_on_by_the_same_command(
    machines: Machines, runs: list[PlannedRun], tmp_path: Path
) -> None:
    first, second = runs
    log = tmp_path / "experiment.log"

    driver = start(tmp_path, machines)
    wait_for(lambda: (first.place / "rollouts/step-000000.parquet").exists() or driver.poll() is not None)
    driver.kill()
    driver.wait()
    assert is_held(first), f"the training outlives the experiment: {log.read_text()} {first.log.read_text()}"

    driver = start(tmp_path, machines)
    wait_for(lambda: (second.place / "journal").exists() or driver.poll() is not None)
    assert driver.poll() is None, log.read_text()
    os.kill(holder(second), signal.SIGKILL)
    assert driver.wait(300) == 1
    told = ("grpo-s0: finished", "1 of them finished already")  # before the second start, or while it waited
    assert any(words in log.read_text() for words in told), log.read_text()
    assert "poly_epo-s0: failed with signal 9" in log.read_text()
    assert "1 of 2 runs are finished; poly_epo lacks 1" in (tmp_path / "out/table.md").read_text()

    assert start(tmp_path, machines).wait(300) == 0, log.read_text()
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert [(run["finished"], run["done"]) for run in results["runs"]] == [(True, 2), (True, 2)]
    assert all(run["after"]["8"] is not None and len(run["curves"]["reward"]) == 2 for run in results["runs"])
    starts = [len(list((run.place / "starts").glob("epoch-*.json"))) for run in runs]
    assert starts == [1, 2], "what was left at work was waited for, and what was finished was not done again"
    assert "| **poly_epo** | 1 |" in (tmp_path / "out/table.md").read_text()
