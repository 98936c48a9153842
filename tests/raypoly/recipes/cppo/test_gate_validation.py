"""A gate's validation and the audit: worked cases, ties, and what can't be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raypoly.recipes.cppo.audit import PlanAudit
from raypoly.recipes.cppo.gate_validation import GateValidation
from raypoly.run.store import open_store
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


@pytest.mark.parametrize("case", worked_cases("audit", "cppo"))
def test_worked_audits(case: Any) -> None:
    given, want = case["input"], case["expected"]
    found = PlanAudit.of(given["outcomes"], given["J"], given["least_pass"], given["least_density"])
    assert (found.pass_at_k, found.accepted, found.density) == pytest.approx(
        (want["pass_at_K"], want["accepted"], want["density"])
    )
    assert found.passes == want["passes"]


def test_an_audit_that_fails_says_where_to_go_back() -> None:
    assert PlanAudit.of([[1, 0], [0, 1]], [0, 0]).go_back_to == "gate and warm_up"
    assert PlanAudit.of([[0, 0], [0, 0]], [1, 1]).go_back_to == "sft"
    assert PlanAudit.of([[1, 0]], [1]).go_back_to is None
    with pytest.raises(ValueError, match="an audit needs tuples"):
        PlanAudit.of([], [])


def test_an_audit_says_what_acceptance_tells_of_success() -> None:
    outcomes = [[1, 0], [0, 0], [0, 1], [0, 0], [1, 1]]
    found = PlanAudit.of(outcomes, [1, 1, 0, 0, 1], p=[0.9, 0.6, 0.3, 0.3, 0.5])
    assert found.auc == pytest.approx(3.5 / 6), "of six pairs three are in order and one is a tie"
    assert found.pass_if_accepted == pytest.approx(2 / 3)
    assert found.pass_if_rejected == pytest.approx(1 / 2)
    assert list(found.parts.values()) == pytest.approx([2 / 5, 1 / 5, 1 / 5, 1 / 5])
    assert found.result(64).numbers["rejected_solved"] == pytest.approx(1 / 5)


@pytest.mark.parametrize(("outcome", "accepted"), [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_what_one_class_alone_can_t_tell_is_null(outcome: int, accepted: int, tmp_path: Path) -> None:
    found = PlanAudit.of([[outcome, 0]] * 3, [accepted] * 3, p=[0.2, 0.5, 0.7])
    assert found.auc is None
    assert (found.pass_if_accepted is None, found.pass_if_rejected is None) == (not accepted, bool(accepted))
    assert sum(found.parts.values()) == 1
    found.result(3).write(open_store(tmp_path))
    assert PlanAudit.read(tmp_path) == found
