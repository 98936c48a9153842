"""The pass@k family against worked numbers, against enumeration in exact rationals, and against each other."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.algorithms.objectives import build
from raypoly.algorithms.objectives.levels import Levels
from raypoly.algorithms.objectives.passk_training import of_groups
from raypoly.algorithms.objectives.set_functions import SetConfig, SetObjective, Sets
from raypoly.core.errors import UsageError
from raypoly.core.values import Float64
from tests.support.worked_numbers import worked_cases

VALUES = {"none": "s", "loo": "s_loo", "loo_minus_one": "s_loo_minus_1"}
rewards_of_a_group = st.one_of(
    st.lists(st.integers(0, 1), min_size=2, max_size=10), st.lists(st.integers(-3, 6), min_size=2, max_size=10)
)


class Best(SetObjective):
    def score(self, sets: Sets) -> Float64:
        return sets.rewards_Kn.max(axis=1)


def pkpo(baseline: str, k: int, rewards: Any) -> Float64:
    return build("pkpo", k=k, baseline=baseline).advantages(rewards=rewards)


@pytest.mark.parametrize("case", worked_cases("pkpo"))
@pytest.mark.parametrize("baseline", VALUES)
def test_pkpos_worked_numbers(case: Any, baseline: str) -> None:
    got = pkpo(baseline, case["input"]["k"], case["input"]["g"])
    np.testing.assert_allclose(got, case["expected"][VALUES[baseline]], atol=1e-9)
    levels = Levels.of_rewards(np.array(case["input"]["g"], dtype=np.float64))
    assert levels.best(case["input"]["k"]) == pytest.approx(case["expected"]["rho"], abs=1e-9)


@pytest.mark.parametrize("case", worked_cases("passk_training_analytic"))
def test_passk_trainings_worked_numbers(case: Any) -> None:
    got = build("passk_training", k=case["input"]["k"]).advantages(rewards=case["input"]["rewards"])
    np.testing.assert_allclose(got, case["expected"]["brute_force_per_response"], atol=1e-9)


@pytest.mark.parametrize("case", worked_cases("passk_training_bootstrap"))
def test_passk_trainings_worked_groups(case: Any) -> None:
    rewards, groups = np.array(case["input"]["rewards"], dtype=np.float64), np.array(case["input"]["groups"])
    got = of_groups(rewards, groups.astype(np.int32))
    np.testing.assert_allclose(got, case["expected"]["response_adv_sum"], atol=1e-9)


@pytest.mark.parametrize("case", worked_cases("verl_grpo_passk"))
@pytest.mark.parametrize(("std", "name"), [("none", "adv_no_std"), ("sample", "adv_sample_std_eps1e-6")])
def test_best_minus_seconds_worked_numbers(case: Any, std: str, name: str) -> None:
    got = build("best_minus_second", std=std).advantages(rewards=case["input"]["rewards"])
    np.testing.assert_allclose(got, case["expected"][name], atol=1e-9)


@pytest.mark.parametrize("case", worked_cases("identities"))
def test_set_rl_pkpo_and_passk_training_are_one_family(case: Any) -> None:
    for one in case["cases"]:
        n, rho = one["n"], one["rho"]
        np.testing.assert_allclose(pkpo("none", n, one["rewards"]), one["pkpo_s"], atol=1e-9)
        training = build("passk_training", k=n).advantages(rewards=one["rewards"])
        np.testing.assert_allclose(training, np.array(one["adv_mean"]) / math.sqrt(rho * (1 - rho)), atol=1e-8)


def by_definition(rewards: list[int], k: int, baseline: str) -> list[Fraction]:
    """PKPO's estimators as the paper defines them, sums over all sets of k."""

    def s(g: list[int], i: int) -> Fraction:
        sets = [G for G in itertools.combinations(range(len(g)), k) if i in G]
        return Fraction(sum(max(g[j] for j in G) for G in sets), math.comb(len(g), k))

    def loo(i: int) -> Fraction:
        others = rewards[:i] + rewards[i + 1 :]
        return s(rewards, i) - sum((s(others, j) for j in range(len(others))), Fraction(0)) / len(others)

    def loo_minus_one(i: int) -> Fraction:
        sets = [G for G in itertools.combinations(range(len(rewards)), k) if i in G]
        added = sum(max(rewards[j] for j in G) - max(rewards[j] for j in G if j != i) for G in sets)
        return Fraction(added, math.comb(len(rewards), k))

    one: Callable[[int], Fraction] = {"none": lambda i: s(rewards, i), "loo": loo, "loo_minus_one": loo_minus_one}[
        baseline
    ]
    return [one(i) for i in range(len(rewards))]


@settings(max_examples=100)
@given(rewards_of_a_group, st.data())
def test_pkpo_is_its_definition_for_binary_and_graded_rewards(rewards: list[int], data: st.DataObject) -> None:
    baseline = data.draw(st.sampled_from(list(VALUES)))
    low, high = (2 if baseline == "loo_minus_one" else 1), len(rewards) - (baseline == "loo")
    k = data.draw(st.integers(low, high))
    want = [float(value) for value in by_definition(rewards, k, baseline)]
    np.testing.assert_allclose(pkpo(baseline, k, rewards), want, atol=1e-12)


@settings(max_examples=100)
@given(rewards_of_a_group, st.data())
def test_set_rl_of_the_best_reward_is_pkpo_and_passk_training(rewards: list[int], data: st.DataObject) -> None:
    N = len(rewards)
    k = data.draw(st.integers(1, N - 1))
    set_rl = Best(SetConfig(set_size=k, reduction="mean")).advantages(rewards=rewards)
    values = [max(G) for G in itertools.combinations(rewards, k)]
    rho, sigma = float(np.mean(values)), float(np.std(values))
    np.testing.assert_allclose(N / k * pkpo("none", k, rewards) - rho, set_rl, atol=1e-12)
    training = build("passk_training", k=k).advantages(rewards=rewards)
    if min(values) == max(values):
        assert not training.any()
    else:
        np.testing.assert_allclose(training * sigma, set_rl, atol=1e-12)
    assert training.sum() == pytest.approx(0, abs=1e-9)


@settings(max_examples=50)
@given(rewards_of_a_group)
def test_best_minus_second_is_pkpos_last_baseline_over_one_set_of_all(rewards: list[int]) -> None:
    got = build("best_minus_second").advantages(rewards=rewards)
    np.testing.assert_allclose(got, pkpo("loo_minus_one", len(rewards), rewards), atol=1e-15)


@pytest.mark.parametrize(
    "rewards", [[1] * 8, [0] * 8, [0.1] * 8, [1, 1, 1, 1, 1, 0.3, 0.3, 0.1]], ids=["right", "wrong", "equal", "easy"]
)
def test_groups_with_nothing_to_learn_from_have_exact_zeros(rewards: list[float]) -> None:
    for name, params in [("pkpo", {"k": 5}), ("passk_training", {"k": 4}), ("best_minus_second", {})]:
        assert not build(name, **params).advantages(rewards=rewards).any(), name


def test_drawn_groups_repeat_with_their_seed_and_go_to_the_analytic_form() -> None:
    rewards = [1, 0, 0, 1, 0, 0, 0, 0]

    def drawn(seed: int) -> Float64:
        objective = build("passk_training", k=4, estimator="bootstrap", bootstrap_groups=4000, seed=seed)
        return objective.advantages(rewards=rewards) / (4000 * 4 / 8)

    np.testing.assert_array_equal(drawn(3), drawn(3))
    assert not np.array_equal(drawn(3), drawn(4))
    np.testing.assert_allclose(drawn(3), build("passk_training", k=4).advantages(rewards=rewards), atol=0.1)
    few = build("passk_training", k=2, estimator="bootstrap", bootstrap_groups=1).advantages(rewards=rewards)
    assert not few.any()
    assert build("passk_training", estimator="bootstrap").advantages(rewards=rewards).sum() == pytest.approx(
        0, abs=1e-9
    )


def test_1024_graded_rewards_are_finite() -> None:
    rewards = np.random.default_rng(0).random(1024)
    for k in (2, 16, 512, 1023):
        for baseline in VALUES:
            assert np.all(np.isfinite(pkpo(baseline, k, rewards)))
        assert np.all(np.isfinite(build("passk_training", k=k).advantages(rewards=rewards)))


@pytest.mark.parametrize(
    ("name", "params", "size", "message"),
    [
        ("pkpo", {"k": 5}, 4, r"objective\.k=5 must be at most 4"),
        ("pkpo", {"k": 4, "baseline": "loo"}, 4, r"objective\.k=4 must be at most 3 with baseline loo"),
        ("pkpo", {"k": 1}, 4, r"objective\.k=1 has no baseline loo_minus_one .* use none or loo"),
        ("passk_training", {"k": 4}, 4, r"objective\.k=4 must be smaller than train\.rollouts=4"),
        ("best_minus_second", {}, 1, r"needs train\.rollouts of at least 2"),
    ],
)
def test_a_k_that_does_not_fit_is_refused(name: str, params: dict[str, Any], size: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(name, **params).check(size)
    with pytest.raises(UsageError, match=message):
        build(name, **params).advantages(rewards=[0.0] * size)
