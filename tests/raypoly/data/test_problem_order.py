"""Epochs without replacement that depend on the seed and the step alone; a step takes no problem of them twice."""

from __future__ import annotations

import pytest

from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, TestSuite
from raypoly.data.problem_order import EpochOrder, StepProblems

PROBLEMS = [Problem(str(i), "", "f", TestSuite("calls", "[]")) for i in range(23)]


def test_an_epoch_takes_every_problem_once_at_most_and_the_next_is_another_order() -> None:
    order = EpochOrder(PROBLEMS, 5, seed=0)
    epochs = [[p.id for step in range(4) for p in order.batch(4 * epoch + step)] for epoch in range(2)]
    assert all(len(set(epoch)) == 20 for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_a_step_does_not_depend_on_what_was_asked_before() -> None:
    assert EpochOrder(PROBLEMS, 5, seed=1).batch(7) == EpochOrder(PROBLEMS, 5, seed=1).batch(7)
    assert EpochOrder(PROBLEMS, 5, seed=1).batch(7) != EpochOrder(PROBLEMS, 5, seed=2).batch(7)


def test_too_few_problems_are_refused() -> None:
    with pytest.raises(UsageError, match="only 23 training problems"):
        EpochOrder(PROBLEMS, 24, seed=0)


def test_steps_that_take_no_more_follow_each_other_as_batches_do() -> None:
    order, cursor = EpochOrder(PROBLEMS, 5, seed=0), 0
    for step in range(10):
        step_problems = StepProblems(order, cursor, 5)
        assert step_problems.planned == order.batch(step)
        assert StepProblems(order, order.cursor_at(step), 5).planned == order.batch(step)
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
