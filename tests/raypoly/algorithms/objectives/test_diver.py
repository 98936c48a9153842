"""DIVER pays right programs, early on, for statements that no other has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from raypoly.algorithms.objectives import build
from raypoly.algorithms.objectives.behaviour import statements_of
from raypoly.algorithms.objectives.diver import share_unseen
from raypoly.core.values import Evidence, Verdict
from tests.support.worked_numbers import worked_cases

STATEMENTS = [{"a", "b"}, {"b", "c", "d"}, {"a"}, set()]


@pytest.mark.parametrize("case", worked_cases("diver"))
def test_worked_numbers(case: Any) -> None:
    got = share_unseen([frozenset(own) for own in case["input"]["statement_sets"]])
    np.testing.assert_allclose(got, case["expected"]["equ_bonus"], atol=1e-9)


def test_only_right_programs_are_paid_and_no_more_than_the_cap() -> None:
    objective = build("diver", scale=0.3, cap=0.5)
    got = objective.advantages(rewards=[1, 1, 0, 0], statements=STATEMENTS, step=0)
    np.testing.assert_allclose(got, np.array([1, 1.15, 0, 0]) - 2.15 / 4, atol=1e-12)
    wrong = objective.advantages(rewards=[1, 0, 0, 0], statements=STATEMENTS, step=0)
    np.testing.assert_allclose(wrong, [0.75, -0.25, -0.25, -0.25], atol=1e-12)


def test_the_bonus_ends_with_its_steps() -> None:
    objective = build("diver", steps=10)
    late = objective.advantages(rewards=[1, 1, 0, 0], statements=STATEMENTS, step=10)
    np.testing.assert_array_equal(late, build("grpo").advantages(rewards=[1, 1, 0, 0]))
    assert objective.advantages(rewards=[1, 1, 0, 0], statements=STATEMENTS, step=9)[1] > late[1]


@pytest.mark.parametrize("reward", [0, 1])
def test_a_group_of_equal_rewards_is_dropped(reward: int) -> None:
    assert not build("diver").advantages(rewards=[reward] * 4, statements=STATEMENTS, step=0).any()


def test_order_means_nothing_and_the_mean_is_zero() -> None:
    rewards, order = np.array([1, 1, 0, 1]), [2, 3, 0, 1]
    got = build("diver").advantages(rewards=rewards, statements=STATEMENTS, step=0)
    again = build("diver").advantages(rewards=rewards[order], statements=[STATEMENTS[i] for i in order], step=0)
    np.testing.assert_allclose(again, got[order], atol=1e-12)
    assert got.sum() == pytest.approx(0, abs=1e-12)


def test_statements_are_the_lines_of_the_canonical_source_and_none_where_it_did_not_parse() -> None:
    evidence = Evidence("def a(b):\n c = 0\n for d in b: c += d\n return c\n", ("for",), {}, "for")
    found = statements_of(Verdict("passed", 1, 1, 0.0, evidence=evidence))
    assert found == {"def a(b):", "c = 0", "for d in b: c += d", "return c"}
    assert statements_of(Verdict("error", 0, 1, 0.0)) == frozenset()
