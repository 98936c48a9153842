"""Steps that take as many problems as they need take the order's, each once, over the ends of epochs."""

from __future__ import annotations

import pytest

from raypoly.errors import UsageError
from raypoly.problems.epoch_order import EpochOrder
from raypoly.problems.step_problems import StepProblems
from raypoly.values import Problem, TestSuite

PROBLEMS = [Problem(str(i), "", "f", TestSuite("calls", "[]")) for i in range(23)]


@pytest.mark.parametrize("step", [0, 1, 3, 4, 11])
def test_without_more_a_step_takes_its_batch(step: int) -> None:
    order = EpochOrder(PROBLEMS, 5, seed=3)
    assert StepProblems(order, order.cursor_at(step), 5).planned == order.batch(step)


def test_steps_that_take_no_more_follow_each_other_as_batches_do() -> None:
    order, cursor = EpochOrder(PROBLEMS, 5, seed=0), 0
    for step in range(10):
        step_problems = StepProblems(order, cursor, 5)
        assert step_problems.planned == order.batch(step)
        cursor = step_problems.cursor


def test_an_epochs_problems_are_taken_once_whichever_step_takes_them() -> None:
    order, cursor, found = EpochOrder(PROBLEMS, 5, seed=1), 0, []
    for more in (3, 0, 5, 3):
        step_problems = StepProblems(order, cursor, 5)
        found += [*step_problems.planned, *step_problems.more(more)]
        assert step_problems.count == 5 + more
        cursor = step_problems.cursor
    assert len(found) == 31
    assert len({problem.id for problem in found[:23]}) == 23
    assert found[23:] == [order.at(place)[1] for place in range(23, 31)]


def test_no_step_takes_a_problem_twice_where_an_epoch_ends_in_it() -> None:
    for seed in range(20):
        step_problems = StepProblems(EpochOrder(PROBLEMS, 5, seed, refill=18), 15, 5)
        ids = [problem.id for problem in (*step_problems.planned, *step_problems.more(18))]
        assert len(set(ids)) == 23


def test_a_step_that_could_take_more_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match=r"prompts_per_step=5 and train\.refill=19 are 24 problems a step, but there"):
        EpochOrder(PROBLEMS, 5, 0, refill=19)
