"""The audit draws as training would, updates nothing, and says what its tuples tell and what they can not tell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raypoly.recipes.cppo.gate_validation import auc
from raypoly.run.store import open_store
from raypoly.run.store.step_records import Record, assemble
from tests.support.timed_run import close_run
from tests.support.virtual_clock import run_virtual
from tests.support.worked_numbers import worked_cases
from tests.workflows.cppo.test_gate import OWN
from tests.workflows.step.virtual_run import open_virtual
from workflows.cppo.plan_audit import PlanAudit, audit

DULL = {f"p{i}" for i in range(0, 32, 2)}


async def audited(
    folder: Path, dull: Collection[str] = DULL, own: Sequence[str] = OWN
) -> tuple[PlanAudit, list[Record], list[Any]]:
    """The audit, what was committed, and what the learner was told."""
    opened = await open_virtual(folder, dull, [*own, "train.steps=0"])
    committed: list[Record] = []
    commit = opened.durability.journal.commit

    async def noted(record: Record) -> None:
        committed.append(record)
        await commit(record)

    opened.durability.journal.commit = noted  # type: ignore[method-assign]
    found = await audit(opened, 0.0, 0.1)
    assert PlanAudit.read(opened.path) == found
    await close_run(opened)
    services: Any = opened.services
    return found, committed, services.learner.recorder.told


def test_it_counts_tuples_of_all_problems_and_updates_nothing(tmp_path: Path) -> None:
    found, committed, told = run_virtual(audited(tmp_path))
    assert told == []
    groups = [record.group for record in committed if record.kind == "generated"]  # type: ignore[union-attr]
    assert {group.problem_id for group in groups} == {f"p{i}" for i in range(32)}
    drafts = [draft for group in groups for draft in group.drafts]
    accepted = np.array([int(draft.rollout.tokens[0]) % 2 == 0 for draft in drafts])
    assert found.accepted == accepted.mean()
    assert 0.0 < found.density <= found.pass_at_k <= 0.5, "half of the problems are solved by nobody"
    parts = assemble(0, committed).groups.values()
    passed = [any(it.findings["score"][i].passed for i in (place, place + 2)) for it in parts for place in (0, 1)]
    assert found.auc == auc(np.concatenate([it.findings["gate"]["p"] for it in parts]), passed)
    assert (found.least_pass, found.least_density, found.passes) == (0.0, 0.1, found.density > 0.1)


@pytest.mark.parametrize(
    ("dull", "go_back_to"), [(DULL, "gate and warm_up"), ({f"p{i}" for i in range(32)}, "sft")], ids=["plans", "all"]
)
def test_a_planner_whose_plans_all_breach_the_contract_is_refused_and_told_where_to_go_back(
    tmp_path: Path, dull: Collection[str], go_back_to: str
) -> None:
    found, *_ = run_virtual(audited(tmp_path, dull, [*OWN, "stages.own=[]"]))
    assert (found.accepted, found.density, found.passes) == (0.0, 0.0, False)
    assert found.go_back_to == go_back_to


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
