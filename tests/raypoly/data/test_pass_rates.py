"""An order that prefers problems with signal is a function of the seed and of what the completed steps' rows say."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, TestSuite
from raypoly.data.problem_order import FLOOR, PassRateOrder, PassRates, StepProblems, pass_count_row

PROBLEMS = [Problem(f"p{i}", "", "f", TestSuite("calls", "[]")) for i in range(40)]
N = 8
PASSES = st.none() | st.integers(0, N)


def order(rows: list[dict[str, Any]], per_step: int = 4, seed: int = 0) -> PassRateOrder:
    """As a start has it that finds these rows in the journal."""
    return PassRateOrder(PROBLEMS, per_step, seed, rates_of(rows))


def rates_of(rows: list[dict[str, Any]]) -> PassRates:
    rates = PassRates()
    for row in rows:
        rates.take(row)
    return rates


def row(names: list[str], passed: list[int | None]) -> dict[str, Any]:
    rewards = [np.full(N, np.nan) if count is None else (np.arange(N) < count).astype(float) for count in passed]
    found: dict[str, Any] = json.loads(json.dumps({"step": 0, "reward": 0.5, **pass_count_row(names, rewards)}))
    return found


def lived(outcomes: list[list[int | None]], seed: int) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """What a run that is never interrupted draws, and the rows that it writes."""
    drawn, rows = [], []
    rates = PassRates()
    here = PassRateOrder(PROBLEMS, 4, seed, rates)
    for step, passed in enumerate(outcomes):
        names = [problem.id for problem in here.batch(step)]
        drawn.append(names)
        rows.append(row(names, passed))
        rates.take(rows[-1])
    return drawn, rows


@settings(max_examples=30)
@given(st.lists(st.lists(PASSES, min_size=4, max_size=4), max_size=12), st.integers(0, 5))
def test_a_run_that_is_killed_after_any_step_draws_what_it_would_have_drawn(
    outcomes: list[list[int | None]], seed: int
) -> None:
    drawn, rows = lived(outcomes, seed)
    for step, names in enumerate(drawn):
        assert [problem.id for problem in order(rows[:step], seed=seed).batch(step)] == names


@given(st.lists(st.tuples(st.sampled_from(PROBLEMS), PASSES), max_size=60), st.integers(0, 1000), st.integers(1, 40))
def test_a_step_never_holds_a_problem_twice(seen: list[tuple[Problem, int | None]], step: int, per_step: int) -> None:
    rows = [row([problem.id], [passed]) for problem, passed in seen]
    batch = order(rows, per_step).batch(step)
    assert len({problem.id for problem in batch}) == per_step
    assert all(problem in PROBLEMS for problem in batch)


def test_problems_with_signal_come_oftener_and_the_others_keep_coming() -> None:
    """A tenth each: never passed, always passed, half and half; the rest was never seen. Each visited four times."""
    solved = {f"p{i}": (0, N, N // 2)[i // 4] for i in range(12)}
    rows = [row(list(solved), list(solved.values())) for _ in range(4)]
    here = order(rows, per_step=1)
    counts = Counter(problem.id for step in range(8_000) for problem in here.batch(step))
    share = [np.mean([counts[f"p{i}"] for i in range(start, start + 4)]) for start in (0, 4, 8)]
    unseen = np.mean([counts[f"p{i}"] for i in range(12, 40)])
    assert min(counts[problem.id] for problem in PROBLEMS) > 0
    weights = [rates_of(rows).weight(f"p{i}") for i in (0, 4, 8, 12)]
    assert weights[0] == pytest.approx(weights[1])
    assert weights[2] == weights[3] == 1 + FLOOR
    for found in (share[0], share[1]):
        assert found / unseen == pytest.approx(weights[0] / weights[3], rel=0.15)
    assert share[2] / unseen == pytest.approx(1.0, rel=0.1)


def test_what_was_seen_last_counts_twice_what_was_seen_before() -> None:
    rates = PassRates()
    assert rates.rate("p0") == 0.5
    rates.take(row(["p0"], [N]))
    assert rates.rate("p0") == pytest.approx((8 + 0.5) / (8 + 1))
    rates.take(row(["p0"], [0]))
    assert rates.rate("p0") == pytest.approx((4 + 0.5) / (4 + 8 + 1))


def test_a_group_without_rewards_counts_for_nothing_and_a_row_without_counts_says_nothing() -> None:
    rates = PassRates()
    rates.take(row(["p0"], [None]))
    rates.take({"step": 3, "reward": 0.1})
    assert rates.rate("p0") == 0.5


@given(st.permutations(range(6)), st.lists(PASSES, min_size=6, max_size=6))
def test_the_slots_of_a_step_may_come_in_any_order(places: list[int], passed: list[int | None]) -> None:
    names = [f"p{i}" for i in range(6)]
    shuffled = row([names[i] for i in places], [passed[i] for i in places])
    assert order([shuffled]).batch(1) == order([row(names, passed)]).batch(1)


def test_another_seed_or_step_draws_otherwise_and_too_few_problems_are_refused() -> None:
    assert order([]).batch(3) == order([]).batch(3)
    assert order([]).batch(3) != order([]).batch(4)
    assert order([]).batch(3) != order([], seed=1).batch(3)
    with pytest.raises(UsageError, match="only 40 training problems"):
        order([], per_step=41)


def test_further_problems_of_a_step_are_the_next_of_its_own_ranking() -> None:
    here = order([row(["p0", "p1"], [0, N])])
    step_problems = StepProblems(here, here.cursor_at(3), 4)
    assert [p.id for p in step_problems.planned] == [p.id for p in here.batch(3)]
    further = [*step_problems.more(2), *step_problems.more(3)]
    assert len({p.id for p in (*step_problems.planned, *further)}) == 9
    wider = order([row(["p0", "p1"], [0, N])], per_step=9)
    assert [p.id for p in wider.batch(3)] == [p.id for p in (*step_problems.planned, *further)]
    with pytest.raises(UsageError, match=r"train\.refill=37 are 41 problems a step"):
        PassRateOrder(PROBLEMS, 4, 0, PassRates(), refill=37)
