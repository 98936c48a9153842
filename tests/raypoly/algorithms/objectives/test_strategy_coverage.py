"""Strategy coverage against worked numbers, enumeration and exact rationals, and what it never pays."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.algorithms.objectives import build, of_run
from raypoly.algorithms.objectives.subset_draws import avoid, avoiding
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Float64

BASELINES = ("leave_one_out", "mean")
NO_ATTEMPT = (0, 100)


def coverage(rewards: Any, labels: Any, n: int, baseline: str = "leave_one_out") -> Float64:
    return build("strategy_coverage", set_size=n, baseline=baseline).advantages(rewards=rewards, labels=labels)


@pytest.mark.parametrize(
    ("rewards", "labels", "n", "baseline", "expected"),
    [
        # of the three companions that i may have, C(6, 3)/C(7, 3) of all sets lack the other right loop
        ([1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 2, 1, 1, 1, 3, 100], 4, "leave_one_out", [4 / 7, 4 / 7, 1, 0, 0, 0, 0, 0]),
        ([1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 2, 1, 1, 1, 3, 100], 4, "mean", [1 / 7, 1 / 7, 3 / 7, *[-1 / 7] * 5]),
        ([1] * 7 + [0], [1] * 6 + [2, 3], 4, "leave_one_out", [0] * 6 + [1, 0]),
        ([1] * 7 + [0], [1] * 6 + [2, 3], 4, "mean", [-1 / 14] * 6 + [1 / 2, -1 / 14]),
        # pairs: the better one adds 1 to a set without the other, 1/2 with it; the worse one adds to two of three
        ([1, 0.5, 0, 0], [1, 1, 1, 2], 2, "leave_one_out", [5 / 6, 1 / 3, 0, 0]),
        ([1, 0.5, 0, 0], [1, 1, 1, 2], 2, "mean", [1 / 3, 0, -1 / 6, -1 / 6]),  # 1, 2/3, 1/2, 1/2 less 2/3
        ([-2, 1, 1, -1], [1, 1, 2, 2], 2, "leave_one_out", [0, 1, 1, 0]),  # below 0 is as good as absent
        ([2, 0.5, 1], [1, 1, 2], 3, "leave_one_out", [1.5, 0, 1]),
        ([0.5], [3], 1, "leave_one_out", [0.5]),
        ([1, 0.25, -1, 1], [7, 7, 7, 0], 1, "leave_one_out", [1, 0.25, 0, 0]),
    ],
)
def test_worked_numbers(rewards: Any, labels: Any, n: int, baseline: str, expected: list[float]) -> None:
    np.testing.assert_allclose(coverage(rewards, labels, n, baseline), expected, atol=1e-12)


def by_definition(rewards: list[int], labels: list[int], n: int, baseline: str) -> list[Fraction]:
    """Set by set."""

    def v(members: tuple[int, ...]) -> int:
        best: dict[int, int] = {}
        for i in members:
            if labels[i] not in NO_ATTEMPT:
                best[labels[i]] = max(best.get(labels[i], 0), rewards[i])
        return sum(best.values())

    N, total = len(rewards), [0] * len(rewards)
    for members in itertools.combinations(range(N), n):
        whole = v(members)
        for place, i in enumerate(members):
            total[i] += whole - (v(members[:place] + members[place + 1 :]) if baseline == "leave_one_out" else 0)
    means = [Fraction(value, math.comb(N - 1, n - 1)) for value in total]
    base = sum(means, Fraction(0)) / N if baseline == "mean" else 0
    return [value - base for value in means]


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(-2, 3), st.sampled_from([1, 2, 3, 9, *NO_ATTEMPT])), min_size=2, max_size=9),
    st.sampled_from(BASELINES),
    st.data(),
)
def test_both_baselines_are_their_enumeration(group: list[tuple[int, int]], baseline: str, data: st.DataObject) -> None:
    rewards, labels = (list(column) for column in zip(*group, strict=True))
    n = data.draw(st.integers(1, len(group) - (baseline == "mean")))
    want = [float(value) for value in by_definition(rewards, labels, n, baseline)]
    np.testing.assert_allclose(coverage(rewards, labels, n, baseline), want, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 300, 1023, 1024])
@pytest.mark.parametrize("graded", [False, True])
def test_1024_rollouts_are_those_of_exact_rationals(n: int, graded: bool) -> None:
    rng = np.random.default_rng(n)
    rewards = rng.integers(0, 9, 1024) / 7 if graded else rng.integers(0, 2, 1024).astype(float)
    labels = np.minimum(rng.geometric(0.3, 1024), 100)
    sample = [*rng.choice(1024, 6, replace=False), int(np.argmax(labels * (rewards > 0)))]

    def added(i: int, beside: int) -> Fraction:
        """The sum over the levels up to i's own, with a level's reach less `beside`."""
        same = sorted(Fraction(float(r)) for r in rewards[labels == labels[i]])
        levels = sorted({Fraction(0), *(r for r in same if r <= Fraction(float(rewards[i])))})
        total = Fraction(0)
        for lower, level in itertools.pairwise(levels):
            reach = sum(r >= level for r in same) - beside
            total += (level - lower) * Fraction(math.comb(1023 - reach, n - 1), math.comb(1023, n - 1))
        return total

    got = coverage(rewards, labels, n)
    np.testing.assert_allclose(got[sample], [float(added(i, 1)) for i in sample], rtol=1e-14)
    if n < 1024:
        centred = coverage(rewards, labels, n, "mean")
        first = sample[0]
        want = [float(added(i, 0) - added(first, 0)) for i in sample]
        np.testing.assert_allclose(centred[sample] - centred[first], want, atol=1e-15)
        assert centred.sum() == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize(("N", "n"), [(2, 1), (1024, 512), (300, 300)])
def test_the_table_of_chances_has_the_bits_of_each_alone(N: int, n: int) -> None:
    assert avoiding(N, N - 1, n - 1).tolist() == [avoid(S, N - 1, n - 1) for S in range(N + 1)]
    assert avoiding(N, N - 2, n - 2).tolist() == [avoid(S, N - 2, n - 2) for S in range(N + 1)]


@settings(max_examples=60)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=10), st.data())
def test_within_one_strategy_it_is_pkpo(rewards: list[int], data: st.DataObject) -> None:
    n, N = data.draw(st.integers(2, len(rewards))), len(rewards)
    pkpo = build("pkpo", k=n, baseline="loo_minus_one").advantages(rewards=rewards)
    np.testing.assert_allclose(coverage(rewards, [5] * N, n), N / n * pkpo, atol=1e-12)


@pytest.mark.parametrize("baseline", BASELINES)
def test_a_batch_is_each_of_its_groups_alone_and_equals_are_equal_to_the_last_bit(baseline: str) -> None:
    rng, objective = np.random.default_rng(3), build("strategy_coverage", set_size=5, baseline=baseline)
    rewards, labels = rng.integers(-1, 4, (40, 24)) / 3, rng.choice([-7, 1, 2, 3, 2**31 - 1, *NO_ATTEMPT], (40, 24))
    together = objective.batch(rewards=np.asfortranarray(rewards), labels=labels)
    for got, r, ids in zip(together, rewards, labels, strict=True):
        np.testing.assert_array_equal(got, objective.advantages(rewards=r, labels=ids))
        order = rng.permutation(24)
        moved = objective.advantages(rewards=r[order], labels=ids[order])
        np.testing.assert_allclose(moved, got[order], rtol=0, atol=1e-15)
        for level in np.unique(np.stack([r, ids]), axis=1).T:
            assert len(set(got[(r == level[0]) & (ids == level[1])])) == 1
    assert objective.batch(rewards=np.zeros((0, 8)), labels=np.zeros((0, 8))).shape == (0, 8)


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.integers(-2, 2), st.sampled_from([1, 2, 3, 100])), min_size=2, max_size=12),
    st.sampled_from(BASELINES),
    st.data(),
)
def test_no_wrong_rollout_and_no_missing_attempt_is_ever_paid(
    group: list[tuple[int, int]], baseline: str, data: st.DataObject
) -> None:
    rewards, labels = (np.array(column) for column in zip(*group, strict=True))
    got = coverage(rewards, labels, data.draw(st.integers(1, len(group) - 1)), baseline)
    unpaid = got[(rewards <= 0) | (labels == 100)]
    assert np.all(unpaid <= 0)
    assert len(set(unpaid)) <= 1, "no attempt is valued like a wrong one"
    if baseline == "leave_one_out":
        assert not unpaid.any()
        assert np.all(got >= 0)


@pytest.mark.parametrize(("N", "n"), [(8, 8), (12, 2), (1024, 16)])
def test_a_strategy_that_all_but_n_less_2_have_is_worth_nothing(N: int, n: int) -> None:
    for right in range(1, N + 1):
        got = coverage([1] * right + [0] * (N - right), [3] * N, n)
        assert got[:right].all() == (right <= N - n + 1)
        assert not got[right:].any()
    assert not coverage([0.1] * 9, [1, 2, 3] * 3, 4, "mean").any(), "equal worth leaves exact zeros"


def test_it_is_reached_by_config_and_needs_labels() -> None:
    words = "objective.name=strategy_coverage objective.set_size=3 objective.baseline=mean"
    objective = of_run(load(None, words.split(), note=lambda text: None))
    assert objective.needs == {"labels"}
    assert objective.config.model_dump() == {"degenerate_ids": NO_ATTEMPT, "set_size": 3, "baseline": "mean"}


@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        ("leave_one_out", r"^objective\.set_size=5 must be at most train\.rollouts=4: no set of rollouts is larger"),
        ("mean", r"^objective\.set_size=5 must be smaller than train\.rollouts=4: with one set of all"),
        ("loo", r"^objective\.baseline='loo' does not fit strategy_coverage: .* 'leave_one_out' or 'mean'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(baseline: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        coverage([0.0] * 4, [1] * 4, 5, baseline)
    build("strategy_coverage", set_size=4).check(4)
    with pytest.raises(UsageError, match="smaller"):
        build("strategy_coverage", set_size=4, baseline="mean").check(4)
