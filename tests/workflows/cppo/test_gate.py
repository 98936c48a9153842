"""The gate: its part is of drafts, in the journal before advantages use it, and a gate that is away is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from raypoly.algorithms import objectives
from raypoly.core.errors import Away
from raypoly.core.settings import load
from raypoly.core.values import Draft, Problem
from raypoly.recipes.cppo.gate_question import GateAnswers
from raypoly.recipes.cppo.gate_stage import ContractGate, GateStage
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.rollout_files import RolloutFiles
from tests.raypoly.rollouts.scaffolds.test_scaffolds import PLAN, PROBLEM, draft
from tests.workflows.step.test_scaffold_rounds import (
    PlansAlone,
    TwoRounds,
    finished,
    named,
    number,
)


class Even(GateStage):
    """Likelier for plans whose first token is even; away at its first question of a problem."""

    away: ClassVar[set[str]] = set()
    asked: ClassVar[list[str]] = []

    async def answers(self, problem: Problem, drafts: Sequence[Draft], services: Any) -> GateAnswers:
        if problem.id in self.away:
            self.away.discard(problem.id)
            raise Away("the gate's server is away")
        self.asked.append(problem.id)
        p = [0.2 + 0.6 * (number(draft) % 2 == 0) for draft in drafts]
        return GateAnswers(np.array(p), np.full(len(drafts), np.nan))


OWN = (
    f"scaffold.name={named(TwoRounds)}",
    "objective.name=cppo",
    "loss.name=clipped_surrogate",
    f"stages.own=[{__name__}:Even]",
)


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Even, "asked", [])
    monkeypatch.setattr(Even, "away", set())


def test_its_part_is_of_drafts_and_pays_plans(tmp_path: Path) -> None:
    step, _, _, kinds = finished(tmp_path, *OWN)
    assert kinds.count("gate") == 4
    assert step.applied.metrics["objective/duplicates"] == 0.0, "plans are measured without attempts too"
    table = RolloutFiles(LocalStore(tmp_path)).table(0)
    roles = table.column("role").to_pylist()
    for role, p, accepted in zip(
        roles, table.column("gate/p").to_pylist(), table.column("gate/accepted").to_pylist(), strict=True
    ):
        assert (p is None, accepted is None) == ((True, True) if role == "solve" else (False, False))
    for group, rewards, advantages in zip(step.groups, step.rewards, step.draft_advantages, strict=True):
        part = group.findings["gate"]
        assert isinstance(part, pa.RecordBatch)
        accepted = np.array([number(draft) % 2 == 0 for draft in group.drafts], float)
        assert part.column("accepted").to_pylist() == accepted.astype(bool).tolist()
        worth = accepted * np.array([rewards[group.draft_of == place].max() for place in (0, 1)])
        want = (worth - worth.mean()) / (worth.std(ddof=1) + 1e-6)
        np.testing.assert_allclose(advantages, want, atol=1e-12)
    assert step.applied.metrics["gate/accepted"] is not None


def test_a_gate_that_is_away_is_waited_for_and_nobody_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, *_ = finished(tmp_path / "whole", *OWN)
    monkeypatch.setattr(Even, "away", {group.problem_id for group in whole.groups})
    waited, *_ = finished(tmp_path / "waited", *OWN)
    assert waited.applied.digest == whole.applied.digest
    assert waited.applied.metrics["pauses"]


def test_the_warm_up_pays_plans_by_the_gate_alone_and_scores_nothing(tmp_path: Path) -> None:
    own = (f"scaffold.name={named(PlansAlone)}", *OWN[1:], "objective.reward=gate")
    step, _, _, kinds = finished(tmp_path, *own)
    assert "score" not in kinds
    assert kinds.count("gate") == 4
    assert step.applied.metrics["objective/duplicates"] == 0.0, "plans are measured without attempts too"
    for group, advantages in zip(step.groups, step.draft_advantages, strict=True):
        accepted = np.array([number(draft) % 2 == 0 for draft in group.drafts], float)
        want = (accepted - accepted.mean()) / (accepted.std(ddof=1) + 1e-6)
        np.testing.assert_allclose(advantages, want, atol=1e-12)


def test_a_region_of_weight_zero_is_no_row_of_the_update(tmp_path: Path) -> None:
    rows = {}
    for weight in ("plan_weight=0", "solver_weight=0", "plan_weight=1"):
        _, recorder, *_ = finished(tmp_path / weight, *OWN, f"objective.{weight}")
        rows[weight] = sum(len(told) for told in recorder.told if isinstance(told, list))
    assert rows == {"plan_weight=0": 16, "solver_weight=0": 8, "plan_weight=1": 24}


def test_a_plan_that_keeps_the_contract_is_accepted_and_one_that_was_cut_is_not() -> None:
    config = load(None, ["objective.name=cppo", "scaffold.name=tuple"], str)
    gate, drafts = ContractGate(config, objectives.of_run(config)), [draft(PLAN), draft("A: Add.")]
    found = asyncio.run(gate.answers(PROBLEM, [*drafts, draft(PLAN, finish_reason="length")], None))
    assert found.p.tolist() == [1.0, 0.0, 0.0]
