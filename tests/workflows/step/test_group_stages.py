"""What becomes of a step's advantages between objective and journal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raypoly.algorithms.objectives import Batch, Objective, build
from raypoly.algorithms.objectives.objective import ObjectiveConfig, ScoredGroup
from raypoly.core.values import Float64, Group, Rollout, Verdict
from tests.support.service_times import Times
from tests.support.timed_run import close_run, open_timed_run
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import taken
from workflows.startup.open_run import OpenRun
from workflows.step.training_group import TrainingGroup

TOKENS = ((3, 1), (2, 2), (5, 5))
PASSED, WRONG = Verdict("passed", 1, 1, 0.0), Verdict("wrong", 0, 1, 0.0)
VERDICTS = ((PASSED, WRONG), (WRONG, PASSED), (Verdict("infra", 0, 0, 0.0, "no tests"),) * 2)


def group(slot: int) -> Group:
    """Two rollouts with as many tokens as TOKENS says; the tests of the last group's problem can't be run."""
    rollouts = tuple(
        Rollout(np.zeros(1, np.int32), np.zeros(n, np.int32), np.zeros(n, np.float32), "", "stop", 1, 0)
        for n in TOKENS[slot]
    )
    return Group(0, slot, f"p{slot}", rollouts, {"score": VERDICTS[slot]})


def opening(folder: Path, objective: Objective, **own: Any) -> Awaitable[OpenRun]:
    """A run of the product's own steps over services that sleep on a virtual clock."""
    return open_timed_run(folder, Times.drawn(1, 4), objective=objective, **own)


def test_an_objective_over_the_batch_sees_lengths_and_no_group_that_is_skipped(tmp_path: Path) -> None:
    objective = build("reinforce_plus_plus")

    async def finished() -> list[TrainingGroup]:
        opened = await opening(tmp_path, objective)
        estimator, problems = opened.estimator, opened.problems.splits["train"]

        async def flow(slot: int) -> TrainingGroup:
            await asyncio.sleep(3 - slot)
            return estimator.estimate(group(slot), problems[slot])

        async with asyncio.TaskGroup() as tasks:
            ready = estimator.over_step(tasks, [tasks.create_task(flow(slot)) for slot in range(3)])
        await close_run(opened)
        return [trained.result() for trained in ready]

    got = [trained.advantages for trained in run_virtual(finished())]
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
    (step,) = taken(opening(tmp_path, Sevens(ObjectiveConfig()))).steps
    assert [set(advantages.tolist()) for advantages in step.advantages] == [{7.0}] * len(step.groups)
    assert step.applied.metrics["zero_advantage"] == 0.0


class Counts(Objective):
    """Remembers how many groups of each problem it has seen."""

    def __init__(self, config: ObjectiveConfig) -> None:
        super().__init__(config)
        self.seen: dict[str, int] = {}

    def compute(self, group: ScoredGroup) -> Float64:
        assert group.problem is not None
        self.seen[group.problem] = self.seen.get(group.problem, 0) + 1
        return group.rewards - group.rewards.mean()

    def state_dict(self) -> dict[str, Any]:
        return {"seen": dict(self.seen)}


def test_a_checkpoint_remembers_no_group_of_a_step_that_is_under_way(tmp_path: Path) -> None:
    objective = Counts(ObjectiveConfig())

    opened = taken(opening(tmp_path, objective)).opened
    whole = dict(objective.seen)
    opened.estimator.estimate(group(0), opened.problems.splits["train"][0])
    assert json.loads(opened.durability.memory.objective_state) == {"seen": whole}
    assert set(whole.values()) == {1}
    assert objective.seen["p0"] == 2


def test_an_objective_that_remembers_is_shown_again_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    before, after = build("outcome_exploration"), build("outcome_exploration")

    same = taken(opening(tmp_path, before)).opened.services.learner
    again = taken(opening(tmp_path, after, learner=lambda *given: same)).opened
    remembered = json.loads(again.durability.memory.objective_state)
    assert remembered == before.state_dict() == after.state_dict()
    assert sum(remembered["counts"]["p0"].values()) == 8


@pytest.mark.parametrize("name", ["outcome_exploration", "diver"])
def test_what_an_objective_needs_of_programs_comes_from_their_verdicts(tmp_path: Path, name: str) -> None:
    (step,) = taken(opening(tmp_path, build(name))).steps
    assert all(np.all(np.isfinite(each)) for each in step.advantages)
