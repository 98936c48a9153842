"""What becomes of a step's advantages between objective and journal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from benchmarks.overlaps import steps
from benchmarks.overlaps.clock import VirtualLoop
from benchmarks.overlaps.times import Times
from raypoly.objectives import Batch, Objective, build
from raypoly.objectives.base import ObjectiveConfig, ScoredGroup
from raypoly.store.records import CompletedStep
from raypoly.values import Float64, Group, Rollout, Verdict
from workflows.learning import Trained
from workflows.stages import Stages
from workflows.train import Training

TOKENS = ((3, 1), (2, 2), (5, 5))
PASSED, WRONG = Verdict("passed", 1, 1, 0.0), Verdict("wrong", 0, 1, 0.0)
VERDICTS = ((PASSED, WRONG), (WRONG, PASSED), (Verdict("infra", 0, 0, 0.0, "no tests"),) * 2)


def group(slot: int) -> Group:
    """Two rollouts with as many tokens as TOKENS says; the tests of the last group's problem can't be run."""
    rollouts = tuple(
        Rollout(np.zeros(1, np.int32), np.zeros(n, np.int32), np.zeros(n, np.float32), "", "stop", 1, 0)
        for n in TOKENS[slot]
    )
    return Group(0, slot, f"p{slot}", rollouts, VERDICTS[slot])


async def step_with(objective: Objective, folder: Path) -> CompletedStep:
    """The product's own step over services that sleep on a virtual clock."""
    parts = await steps._parts(folder, Times.drawn(1, 4), 2, False, steps._Rows())
    stages = parts.stages
    parts.stages = Stages(parts.config, objective, stages._scorers, stages._judge, stages._patience, parts.aside)
    await Training(parts).step(0)
    stages._scorers.stop()
    await parts.judge_use.close()
    await parts.journal.close()
    return parts.journal.load_step(0)


def test_an_objective_over_the_batch_sees_lengths_and_no_group_that_is_set_aside(tmp_path: Path) -> None:
    objective = build("reinforce_plus_plus")

    async def finished() -> list[Trained]:
        parts = await steps._parts(tmp_path, Times.drawn(1, 4), 2, False, steps._Rows())
        old, problems = parts.stages, parts.problems.splits["train"]
        stages = Stages(parts.config, objective, old._scorers, old._judge, old._patience, parts.aside)

        async def flow(slot: int) -> Trained:
            await asyncio.sleep(3 - slot)
            return stages.value(group(slot), problems[slot])

        async with asyncio.TaskGroup() as tasks:
            ready = stages.finish(tasks, [tasks.create_task(flow(slot)) for slot in range(3)])
        old._scorers.stop()
        await parts.judge_use.close()
        await parts.journal.close()
        return [trained.result() for trained in ready]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        got = [trained.advantages for trained in runner.run(finished())]
    want = objective.finish(Batch.of([np.array([1.0, 0.0]), np.array([0.0, 1.0])], TOKENS[:2]))
    np.testing.assert_array_equal(got, [*want, np.zeros(2)])
    assert want[0][0] > 0


class Sevens(Objective):
    """Its advantages are known when the step is."""

    def compute(self, group: ScoredGroup) -> Float64:
        return np.zeros(group.size)

    def finish(self, batch: Batch) -> list[Float64]:
        return [np.full(len(advantages), 7.0) for advantages in batch]


def test_the_journal_keeps_the_advantages_that_were_trained_on(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        step = runner.run(step_with(Sevens(ObjectiveConfig()), tmp_path))
    assert [set(advantages.tolist()) for advantages in step.advantages] == [{7.0}] * len(step.groups)
    assert step.applied.metrics["zero_advantage"] == 0.0
