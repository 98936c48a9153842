"""Killed in its first seconds, twice in a row, and while it takes itself up again: the same command goes on.

`RAYPOLY_EARLY_KILLS=all` kills at every moment, CI at some.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raypoly import Run
from tests.support.local_driver import LocalDriver
from tests.support.ray_machines import Machines
from tests.support.run_differences import run_differences

Moment = Callable[[LocalDriver, str, Machines], bool]
"""Whether it has come: the driver, what it has said since its start, and where its actors are."""

STARTING: dict[str, Moment] = {
    "just started": lambda driver, said, machines: True,
    "place printed": lambda driver, said, machines: str(driver.folder) in said,
    "lease taken": lambda driver, said, machines: (driver.folder / "lease.json").exists(),
    "Ray is up": lambda driver, said, machines: "Ray is up" in said,
    "learner started": lambda driver, said, machines: machines.is_there("learner"),
    "generator started": lambda driver, said, machines: machines.is_there("generator"),
    "weights on their way": lambda driver, said, machines: "5 steps." in said,
    "weights on their way, once more": lambda driver, said, machines: "5 steps." in said,
}
RESUMING: dict[str, Moment] = {
    "learner started": lambda driver, said, machines: machines.is_there("learner"),
    "replaying": lambda driver, said, machines: machines.is_there("learner", "accumulate", "apply"),
    "replaying, once more": lambda driver, said, machines: machines.is_there("learner", "accumulate", "apply"),
    "replayed": lambda driver, said, machines: "done already" in said,
}
SHORT = ("weights on their way", "replaying, once more")
ALL = os.environ.get("RAYPOLY_EARLY_KILLS") == "all"


def chosen(moments: dict[str, Moment]) -> list[Moment]:
    return [moment for name, moment in moments.items() if ALL or name in SHORT]


def kill_at(driver: LocalDriver, machines: Machines, moment: Moment) -> None:
    """Start the driver and kill it as soon as the moment has come."""
    before = len(driver.log()) if driver.log_file.exists() else 0
    driver.start()
    while not moment(driver, driver.log()[before:], machines):
        assert driver.lives, driver.log()[before:]
        time.sleep(0.02)
    driver.kill()
    machines.wait_until_idle()


def test_driver_killed_at_any_moment_of_its_start_and_of_its_replay_goes_on(
    machines: Machines, reference: LocalDriver, small_run: list[str], tmp_path: Path
) -> None:
    overrides = [*small_run, "train.checkpoint_every=100"]  # so that every step must be replayed
    driver = LocalDriver(tmp_path / "run", overrides, {"RAY_ADDRESS": machines.address})
    for moment in chosen(STARTING):
        kill_at(driver, machines, moment)
    kill_at(driver, machines, lambda driver, said, machines: (driver.folder / "rollouts/step-000002.parquet").exists())
    for moment in chosen(RESUMING):
        kill_at(driver, machines, moment)
    assert driver.finish() == 0, driver.log()
    assert run_differences(Run(driver.folder), Run(reference.folder)) == []
    said = driver.log().rpartition("Loading the problems ...")[2]
    (resumed,) = re.findall(r"^Resuming at step (\d) of 5$", said, re.M)
    assert f"\nLearning steps 1 to {int(resumed) - 1} again from the journal, without sampling ...\n" in said
    assert "\nStarting learner, engine, scorers, judge and reward functions (" in said


@pytest.mark.skipif(not ALL, reason="RAYPOLY_EARLY_KILLS=all kills them; `benchmarks.chaos` kills them at any time")
@pytest.mark.parametrize("actor", ["learner", "generator", "scorer", "judge"])
def test_actor_killed_while_the_driver_takes_itself_up_is_replaced(
    machines: Machines, reference: LocalDriver, small_run: list[str], tmp_path: Path, actor: str
) -> None:
    driver = LocalDriver(tmp_path / "run", small_run, {"RAY_ADDRESS": machines.address})
    kill_at(driver, machines, lambda driver, said, machines: (driver.folder / "rollouts/step-000000.parquet").exists())
    driver.start()
    for _ in range(2):
        while driver.lives and not machines.kill_actor(actor):
            time.sleep(0.002)
    assert driver.finish() == 0, driver.log()
    assert run_differences(Run(driver.folder), Run(reference.folder)) == []
