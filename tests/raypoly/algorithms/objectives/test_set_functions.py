"""The set engine: any set function over all sets or some, against definitions in exact rationals."""

import itertools
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.algorithms.objectives import build
from raypoly.algorithms.objectives.set_functions import SetConfig, SetObjective, Sets
from raypoly.algorithms.objectives.subset_draws import independent_sets, some_sets
from raypoly.core.errors import UsageError
from raypoly.core.values import Float64
from tests.support.worked_numbers import worked_cases


class Best(SetObjective):
    def score(self, sets: Sets) -> Float64:
        return sets.rewards_Kn.max(axis=1)


class MeanReward(SetObjective):
    def score(self, sets: Sets) -> Float64:
        return sets.rewards_Kn.mean(axis=1)


PAGE = Path(__file__).resolve().parents[4] / "docs" / "add-an-objective.md"


def best(n: int, **params: Any) -> Best:
    return Best(SetConfig(set_size=n, **params))


@pytest.mark.parametrize("case", worked_cases("set_rl_generic"))
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_worked_numbers(case: Any, reduction: str) -> None:
    got = best(case["input"]["n"], reduction=reduction).advantages(rewards=case["input"]["rewards"])
    np.testing.assert_allclose(got, case["expected"][f"adv_{reduction}"], atol=1e-9)


@pytest.mark.parametrize("case", worked_cases("identities"))
def test_identities_of_the_best_of_a_set(case: Any) -> None:
    for one in case["cases"]:
        got = best(one["n"], reduction="mean").advantages(rewards=one["rewards"])
        np.testing.assert_allclose(got, one["adv_mean"], atol=1e-9)


@settings(max_examples=60)
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=9), st.data())
def test_both_baselines_are_their_definition(rewards: list[int], data: st.DataObject) -> None:
    n = data.draw(st.integers(1, len(rewards) - 1))
    scores = {G: max(rewards[i] for i in G) for G in itertools.combinations(range(len(rewards)), n)}

    def mean(chosen: list[int]) -> Fraction:
        return Fraction(sum(chosen), len(chosen))

    for i, (against_mean, against_others) in enumerate(
        zip(
            best(n, reduction="mean").advantages(rewards=rewards),
            best(n, reduction="mean", baseline="leave_one_out").advantages(rewards=rewards),
            strict=True,
        )
    ):
        held = mean([f for G, f in scores.items() if i in G])
        assert against_mean == pytest.approx(float(held - mean(list(scores.values()))), abs=1e-12)
        left_out = mean([f for G, f in scores.items() if i not in G])
        assert against_others == pytest.approx(float(held - left_out), abs=1e-12)


@pytest.mark.parametrize("n", [1, 3, 7])
def test_the_mean_reward_of_a_set_is_dr_grpo_or_rloo_at_unit_scale(n: int) -> None:
    rewards = np.array([0.0, 1.0, 0.25, 0.5, 0.0, 1.0, 1.0, -2.0])
    dr_grpo = build("grpo").advantages(rewards=rewards)
    unit = MeanReward(SetConfig(set_size=n, reduction="unit")).advantages(rewards=rewards)
    np.testing.assert_allclose(unit, dr_grpo, atol=1e-12)
    rloo = MeanReward(SetConfig(set_size=n, reduction="unit", baseline="leave_one_out")).advantages(rewards=rewards)
    np.testing.assert_allclose(rloo, dr_grpo * 8 / 7, atol=1e-12)


def expected_gradient(objective: Best, size: int, p: float) -> float:
    """E[sum_i d log pi(y_i)/d logit * A_i] of a policy that passes with chance p, over all 2^N groups."""
    total = 0.0
    for outcome in itertools.product([0, 1], repeat=size):
        chance = math.prod(p if passed else 1 - p for passed in outcome)
        scores = np.array([1 - p if passed else -p for passed in outcome])
        total += chance * float(scores @ objective.advantages(rewards=outcome))
    return total


@pytest.mark.parametrize("case", worked_cases("unbiasedness_toy"))
def test_the_toy_policys_gradient(case: Any) -> None:
    given_, want = case["input"], case["expected"]
    for reduction in ("sum", "mean"):
        got = expected_gradient(best(given_["n"], reduction=reduction), given_["N"], given_["p"])
        assert got == pytest.approx(want[f"E_{reduction}_estimator"], abs=1e-9)


def test_sets_of_equal_worth_leave_exact_zeros() -> None:
    for baseline in ("mean", "leave_one_out"):
        assert not best(4, baseline=baseline).advantages(rewards=[0.1] * 9).any()


def test_more_sets_than_are_scored_at_once_are_all_taken() -> None:
    rewards = np.random.default_rng(0).random(22)
    got = MeanReward(SetConfig(set_size=8, reduction="unit")).advantages(rewards=rewards)  # 319,770 sets
    np.testing.assert_allclose(got, build("grpo").advantages(rewards=rewards), atol=1e-10)


def test_distinct_strategies_leave_degenerates_and_the_unwanted_out() -> None:
    sets = Sets(
        np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
        np.array([[1, 2, 2], [5, 5, 0]], dtype=np.int32),
        np.array([[False, False, False], [True, True, True]]),
        None,
    )
    assert sets.strategies().tolist() == [2, 0]
    assert sets.strategies(of=np.array([[True, False, False], [True, True, True]])).tolist() == [1, 0]


@pytest.mark.parametrize(("N", "n", "K"), [(8, 4, 20), (64, 8, 500), (300, 299, 17)])
def test_drawn_sets_differ_and_repeat_with_their_seed(N: int, n: int, K: int) -> None:
    sets_Kn = some_sets(N, n, K, seed=7)
    assert sets_Kn.shape == (K, n)
    assert len({tuple(row) for row in sets_Kn.tolist()}) == K
    assert np.all(np.diff(sets_Kn, axis=1) > 0)
    assert 0 <= sets_Kn.min() <= sets_Kn.max() < N
    np.testing.assert_array_equal(sets_Kn, some_sets(N, n, K, seed=7))
    assert not np.array_equal(sets_Kn, some_sets(N, n, K, seed=8))


def test_every_set_is_drawn_equally_often() -> None:
    drawn = np.concatenate([some_sets(6, 3, 5, seed=seed) for seed in range(2000)])
    alone = independent_sets(np.random.default_rng(0), 6, 3, 10_000)
    for sets_Kn in (drawn, alone):
        counts = np.unique(sets_Kn, axis=0, return_counts=True)[1]
        assert len(counts) == 20
        assert np.all(np.abs(counts - 500) < 110)  # five standard deviations


def test_a_drawn_estimate_goes_to_that_of_all_sets() -> None:
    rewards = [1, 0.5, 0, 0, 0, 0.25, 0, 1]
    exact = best(4, reduction="mean").advantages(rewards=rewards)
    drawn = [best(4, sets=30, reduction="mean", seed=seed).advantages(rewards=rewards) for seed in range(600)]
    np.testing.assert_allclose(np.mean(drawn, axis=0), exact, atol=0.01)
    every = best(4, sets=70, reduction="mean").advantages(rewards=rewards)
    np.testing.assert_array_equal(every, exact)


def test_a_rollout_in_no_drawn_set_has_no_advantage() -> None:
    rewards = [1.0, 0.0, 0.5, 0.25, 0.0, 0.75]
    one = best(2, sets=1, baseline="leave_one_out").advantages(rewards=rewards)
    assert not one.any()  # two rollouts in every set, four in none
    three = best(2, sets=2).advantages(rewards=rewards)
    assert np.count_nonzero(three == 0) >= 2
    assert three.sum() == pytest.approx(0, abs=1e-12)


def test_a_set_as_large_as_the_group_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match=r"set_size=4 must be smaller than train\.rollouts=4: with one set of all"):
        best(4).check(4)
    with pytest.raises(UsageError, match="sets=1000000 sets of 17 are too many to hold: at most 986895"):
        best(17, sets=1_000_000).check(64)


def test_a_set_function_must_give_one_finite_number_a_set() -> None:
    class Broken(SetObjective):
        def score(self, sets: Sets) -> Float64:
            return sets.rewards_Kn.sum(axis=1) * np.nan

    with pytest.raises(ValueError, match=r"Broken\.score must give 6 finite numbers"):
        Broken(SetConfig(set_size=2)).advantages(rewards=[1, 0, 1, 0])


def test_a_set_function_that_reads_labels_gets_no_unknown_ones() -> None:
    class Strategies(Best):
        needs = frozenset({"labels"})

    with pytest.raises(ValueError, match="Strategies needs labels"):
        Strategies(SetConfig(set_size=2)).advantages(rewards=[1, 0, 1])


def test_the_pages_set_function_works_from_a_file_outside_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = next(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "Coverage" in block)
    (tmp_path / "coverage_of_sets.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    objective = build("coverage_of_sets:Coverage", set_size=2)
    got = objective.advantages(rewards=[1, 1, 0, 1], labels=[1, 1, 2, 3])
    np.testing.assert_allclose(got, [0, 0, -0.5, 0.5], atol=1e-12)
