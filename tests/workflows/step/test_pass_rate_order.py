"""With `problems.order=pass_rate` a step's row says what passed, and what comes next follows from the journal."""

from __future__ import annotations

from pathlib import Path

from raypoly.core.config import Config
from raypoly.data.problem_order import EpochOrder, PassRateOrder, PassRates
from tests.support.service_times import Times
from tests.support.timed_run import open_timed_run, timed_config
from tests.workflows.step.virtual_run import taken
from workflows.startup.open_run import OpenRun
from workflows.train import Training


def run(folder: Path, order: str) -> OpenRun:
    """One step over services that sleep on a virtual clock; what passed is drawn by the seed."""
    times = Times.drawn(6, 4)
    config = timed_config(len(times.groups), len(times.groups[0].programs), 2, f"problems.order={order}")
    return taken(open_timed_run(folder, times, config=config)).opened


def test_the_next_step_s_problems_follow_from_the_rows_of_completed_steps(tmp_path: Path) -> None:
    opened = run(tmp_path, "pass_rate")
    applied = opened.durability.journal.applied(0)
    assert applied is not None
    groups = opened.durability.journal.load_step(0)
    assert applied.metrics["problems"] == [group.problem_id for group in groups.groups]
    assert applied.metrics["passed"] == [int((rewards >= 1).sum()) for rewards in groups.rewards]
    again = PassRates()
    again.take(applied.metrics)
    train = opened.config.train
    resumed = PassRateOrder(opened.problems.splits["train"], train.prompts_per_step, train.seed, again)
    assert resumed.batch(1) == Training(opened).order.batch(1)
    assert {again.rate(name) for name in applied.metrics["problems"]} != {0.5}


def test_the_default_is_epochs_and_its_rows_are_as_they_were(tmp_path: Path) -> None:
    assert Config().problems.order == "epochs"
    opened = run(tmp_path, "epochs")
    applied = opened.durability.journal.applied(0)
    assert applied is not None
    assert isinstance(Training(opened).order, EpochOrder)
    assert not {"problems", "passed", "rollouts"} & applied.metrics.keys()
