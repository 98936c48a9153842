"""The order of problems: epochs without replacement that depend on the seed and the step alone."""

import pytest

from raypoly.errors import UsageError
from raypoly.problems.epoch_order import EpochOrder
from raypoly.values import Problem, TestSuite

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
