"""A page shows plans with J and their branches, and what is not known of them is said to be unknown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from raypoly import Run
from raypoly.analysis.reports.rollout_browser import draft_facts, sample_rollouts
from raypoly.rollouts import scaffolds
from tests.raypoly.recipes.cppo.planned_run import FIRST, write_planned_run
from tests.support.drafted_run import write_drafted_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(write_planned_run(tmp_path_factory.mktemp("runs")))


def facts_of(run: Run, table: pa.Table | None = None) -> list[dict[str, Any]]:
    """Of step 0, or of this table in its place."""
    return draft_facts(
        run.stored(0) if table is None else table, scaffolds.of_run(run.config), run.config.train.rollouts
    )


def test_a_plan_has_j_its_breaches_and_how_many_of_its_attempts_passed(run: Run) -> None:
    plans = facts_of(run)[:2]
    assert [(plan["gate"], plan["p"], plan["contract"], plan["solved"]) for plan in plans] == [
        ("accepted", 1.0, "keeps the contract", "2 of 2 attempts passed"),
        ("refused", 0.0, "breaches the contract: missing, extra", "0 of 2 attempts passed"),
    ]
    assert [(plan["method"], plan["followed"], plan["reward"]) for plan in plans] == [("", "", None)] * 2


def test_an_attempt_has_its_method_and_says_whether_it_was_followed(run: Run) -> None:
    attempts = facts_of(run)[2:6]
    assert [(it["method"], it["followed"], it["reward"]) for it in attempts] == [
        (FIRST, "yes", 1.0),
        ("B: Use recursion.", "no", 1.0),
        ("A: Sum them.", "unknown", 0.0),
        ("B: its plan has no method here", "", 0.0),
    ]
    assert {it["gate"] for it in attempts} == {""}


def test_plans_without_attempts_are_alone(run: Run, tmp_path: Path) -> None:
    warm_up = Run(write_planned_run(tmp_path, "scaffold.solve=false", "objective.reward=gate"))
    for own in (run, warm_up):
        plans = facts_of(own)[6:]
        assert [(plan["gate"], plan["solved"], plan["method"]) for plan in plans] == [
            ("accepted", "", ""),
            ("refused", "", ""),
        ]
        assert plans[1]["contract"] == "breaches the contract: missing, extra"


def test_what_nobody_answered_is_unknown_or_nothing(run: Run, tmp_path: Path) -> None:
    table = run.stored(0)
    place = table.column_names.index("gate/accepted")
    asked = table.set_column(place, "gate/accepted", pa.nulls(table.num_rows, pa.bool_()))
    found = facts_of(run, asked)
    assert [fact["gate"] for fact in found[:3]] == ["unknown", "unknown", ""]
    unread = draft_facts(table, None, run.config.train.rollouts)
    assert [(fact["gate"], fact["contract"], fact["method"]) for fact in unread[:2]] == [
        ("accepted", "", ""),
        ("refused", "", ""),
    ]
    tried = facts_of(Run(write_drafted_run(tmp_path)))
    assert {(fact["gate"], fact["contract"], fact["method"], fact["followed"]) for fact in tried} == {("", "", "", "")}


def test_a_plan_is_taken_with_all_of_its_branches_where_there_is_room(run: Run) -> None:
    for most, taken in ((6, 6), (8, 8), (4, 4)):  # of step 0: a group of two plans and four attempts, then two plans
        rows = [row for row in sample_rollouts(run, 2 * most).rows if (row["source"], row["step"]) == ("training", 0)]
        assert [row["role"] for row in rows] == [*["plan"] * 2, *["solve"] * 4, *["plan"] * 2][:taken]
        for plan in (row for row in rows if row["role"] == "plan" and most > 4):
            own = [row for row in rows if row["role"] == "solve" and row["slot"] == plan["slot"]]
            branches = [row for row in own if row["parent"] == plan["place"]]
            assert len(branches) == (2 if plan["solved"] else 0)


def test_a_scaffold_that_is_gone_hides_methods_and_not_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "from raypoly.recipes.cppo.tuple_plans import TuplePlans\n\n\nclass Own(TuplePlans):\n    pass\n"
    (tmp_path / "plans_elsewhere.py").write_text(own)
    with monkeypatch.context() as here:
        here.syspath_prepend(str(tmp_path))
        run = Run(write_planned_run(tmp_path, "scaffold.name=plans_elsewhere:Own"))
        assert facts_of(run)[2]["method"] == FIRST
    del sys.modules["plans_elsewhere"]
    sample = sample_rollouts(Run(run.uri), 1000)
    assert any("methods of plans are not shown" in said for said in sample.said)
    plan = next(row for row in sample.rows if row.get("role") == "plan")
    assert (plan["gate"], plan["contract"]) == ("accepted", "")
