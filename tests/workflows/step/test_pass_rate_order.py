"""With `problems.order=pass_rate` a step's row says what passed, and what comes next follows from the journal."""

from __future__ import annotations

import asyncio
from pathlib import Path

from raypoly.config import Config
from raypoly.problems.pass_rates import PassRateOrder, PassRates
from raypoly.problems.problem_order import EpochOrder
from tests.support.service_times import Times
from tests.support.timed_training import NewestRow, build_parts
from tests.support.virtual_clock import VirtualLoop
from workflows.step.parts import Parts
from workflows.train import Training


async def one_step(folder: Path, order: str) -> tuple[Training, Parts]:
    """The loop over services that sleep on a virtual clock; what passed is drawn by the seed."""
    parts = await build_parts(folder, Times.drawn(6, 4), 2, False, NewestRow())
    problems = parts.config.problems.model_copy(update={"order": order})
    parts.config = parts.config.model_copy(update={"problems": problems})
    training = Training(parts)
    try:
        await training.step(0)
    finally:
        parts.stages._scorers.stop()
        await parts.judge_use.close()
        await parts.journal.close()
    return training, parts


def run(folder: Path, order: str) -> tuple[Training, Parts]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(one_step(folder, order))


def test_the_next_step_s_problems_follow_from_the_rows_of_completed_steps(tmp_path: Path) -> None:
    training, parts = run(tmp_path, "pass_rate")
    applied = parts.journal.applied(0)
    assert applied is not None
    groups = parts.journal.load_step(0)
    assert applied.metrics["problems"] == [group.problem_id for group in groups.groups]
    assert applied.metrics["passed"] == [int((rewards >= 1).sum()) for rewards in groups.rewards]
    again = PassRates()
    again.take(applied.metrics)
    train = parts.config.train
    resumed = PassRateOrder(parts.problems.splits["train"], train.prompts_per_step, train.seed, again)
    assert resumed.batch(1) == training.order.batch(1)
    assert {again.rate(name) for name in applied.metrics["problems"]} != {0.5}


def test_the_default_is_epochs_and_its_rows_are_as_they_were(tmp_path: Path) -> None:
    assert Config().problems.order == "epochs"
    training, parts = run(tmp_path, "epochs")
    applied = parts.journal.applied(0)
    assert applied is not None
    assert isinstance(training.order, EpochOrder)
    assert not {"problems", "passed", "rollouts"} & applied.metrics.keys()
