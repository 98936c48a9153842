"""GRPO and Dr.GRPO against worked numbers, and within sets of peers."""

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.algorithms.objectives import build
from raypoly.algorithms.objectives.grpo import Deviation, compare_with_peers, relative
from raypoly.core.errors import UsageError
from tests.support.worked_numbers import worked_cases

NAMES = {"none": "dr_grpo", "sample": "grpo_sample_std_eps1e-6", "population": "grpo_population_std_eps1e-6"}


@pytest.mark.parametrize("case", worked_cases("grpo_drgrpo_rloo"))
@pytest.mark.parametrize("std", NAMES)
def test_worked_numbers(case: Any, std: str) -> None:
    got = build("grpo", std=std).advantages(rewards=case["input"]["rewards"])
    np.testing.assert_allclose(got, case["expected"][NAMES[std]], atol=1e-9)


@pytest.mark.parametrize("case", worked_cases("grpo_drgrpo_rloo"))
@pytest.mark.parametrize("std", ["sample", "population"])
def test_flowrl_normalises_rewards_as_grpo_does_with_its_deviation(case: Any, std: str) -> None:
    got = build("flowrl", std=std).advantages(rewards=case["input"]["rewards"])
    np.testing.assert_allclose(got, case["expected"][NAMES[std]], atol=1e-9)


def test_an_unknown_objective_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'grpo'"):
        build("grppo")


DEVIATIONS: tuple[Deviation, ...] = get_args(Deviation)


@pytest.mark.parametrize("case", worked_cases("peers", "cppo"))
def test_worked_numbers_of_peers(case: Any) -> None:
    peers = [tuple(peer) for peer in case["input"]["peers"]]
    got = compare_with_peers(case["input"]["values"], peers, case["input"]["std"])
    np.testing.assert_allclose(got, case["expected"]["advantages"], atol=1e-9)


@pytest.mark.parametrize("std", DEVIATIONS)
@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(-5, 5), st.sampled_from("abc")), min_size=1, max_size=12))
def test_each_set_of_peers_is_a_group_of_its_own(std: Deviation, rows: list[tuple[float, str]]) -> None:
    values, peers = np.array([value for value, _ in rows]), [peer for _, peer in rows]
    got = compare_with_peers(values, peers, std)
    for peer in set(peers):
        mine = [place for place, each in enumerate(peers) if each == peer]
        np.testing.assert_array_equal(got[mine], relative(values[mine], std))


@pytest.mark.parametrize("std", DEVIATIONS)
def test_alone_and_among_equals_there_is_nothing_to_learn(std: Deviation) -> None:
    peers = [("plan", None), ("solve", 0), ("solve", 0), ("observe", None)]
    np.testing.assert_array_equal(compare_with_peers([7.0, 1.0, 1.0, -3.0], peers, std), 0.0)


def test_no_rollouts_have_no_advantages() -> None:
    assert compare_with_peers([], [], "sample").shape == (0,)


def test_a_value_short_is_refused() -> None:
    with pytest.raises(ValueError, match="each of 2 rollouts needs one value"):
        compare_with_peers([1.0], ["a", "a"], "none")
