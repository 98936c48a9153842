"""GRPO and Dr.GRPO against worked numbers."""

from typing import Any

import numpy as np
import pytest

from raypoly.algorithms.objectives import build
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


def test_equal_rewards_have_no_advantage() -> None:
    assert not build("grpo", std="sample").advantages(rewards=[1.0] * 8).any()


def test_an_unknown_objective_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'grpo'"):
        build("grppo")
