"""A gate's validation: worked cases, ties, and what can't be measured."""

from __future__ import annotations

from typing import Any

import pytest

from raypoly.recipes.cppo.gate_validation import GateValidation
from tests.support.worked_numbers import worked_cases


@pytest.mark.parametrize("case", worked_cases("gate_validation", "cppo"))
def test_worked_validations(case: Any) -> None:
    given, want = case["input"], case["expected"]
    found = GateValidation.of(given["p_pass"], given["label"], given["recall_wanted"])
    for name in ("tau", "auc", "balanced_accuracy", "precision", "recall"):
        assert getattr(found, name) == pytest.approx(want[name], abs=1e-9), name
    assert found.accepted == want["accepted"]
    assert bool(found.failures) != want["accepted"]


def test_a_threshold_of_ones_own_is_taken_and_what_it_misses_is_said() -> None:
    found = GateValidation.of([0.9, 0.8, 0.3, 0.2], [1, 1, 0, 0], tau=0.85)
    assert (found.tau, found.recall, found.precision, found.auc) == (0.85, 0.5, 1.0, 1.0)
    assert found.failures == ["recall 0.500 is below 0.65"]


def test_ties_count_half() -> None:
    assert GateValidation.of([0.5, 0.5, 0.5, 0.5], [1, 1, 0, 0]).auc == 0.5


@pytest.mark.parametrize(("p", "label"), [([0.5], [1]), ([0.1, 0.2], [0, 0]), ([0.1, 1.2], [0, 1]), ([0.1], [0, 1])])
def test_what_can_t_be_validated_is_no_number(p: list[float], label: list[int]) -> None:
    with pytest.raises(ValueError, match=r"validation needs|from 0 to 1"):
        GateValidation.of(p, label)
