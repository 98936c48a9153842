"""A page has drafts with what was made from them, within its limits; without drafts it is as it always was."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from raypoly import Run
from raypoly.analysis.reports.rollout_browser import RolloutSample, draft_facts, rollout_browser, sample_rollouts
from raypoly.analysis.reports.run_page import show_results, write_report
from raypoly.analysis.reports.run_table import role_table
from raypoly.run.sinks import flatten
from raypoly.run.store.catalogue import Span, bundle_key, step_key
from raypoly.run.store.rollout_files import encode_bundle
from tests.support.drafted_run import TOKENS, write_drafted_run
from tests.support.finished_run import write_finished_run
from tests.support.scored_run import write_scored_run

STORED = 13
"""Drafts and attempts of step 0."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(write_drafted_run(tmp_path_factory.mktemp("runs")))


def training(sample: RolloutSample, step: int) -> list[dict[str, Any]]:
    return [dict(row) for row in sample.rows if (row["source"], row["step"]) == ("training", step)]


def test_each_row_says_what_it_is_and_what_it_was_made_from(run: Run) -> None:
    rows = training(sample_rollouts(run, 1000), 0)
    assert [(row["role"], row["place"], row["made"]) for row in rows] == [
        ("plan", 0, ""), ("plan", 1, ""),
        ("solve", 0, "from draft 0"), ("solve", 1, "from draft 0"), ("solve", 2, "from draft 1"), ("solve", 3, ""),
        ("try", 0, ""), ("try", 1, ""), ("try", 2, "from draft 0"),
        ("solve", 0, "from draft 2"), ("solve", 1, "from draft 1"), ("solve", 2, ""), ("solve", 3, ""),
    ]  # fmt: skip
    assert [row["cut"] for row in rows] == ["cut by its limit", *[""] * (STORED - 1)]
    assert [row["advantage"] for row in rows[:2]] == [0.75, -0.25]
    assert [row["advantage"] for row in rows[6:9]] == [None] * 3, "they were not trained"
    assert [row["status"] for row in rows[:2]] == ["", ""], "nobody ran a plan"
    assert [row["status"] for row in rows[6:10]] == ["", "", "", "passed"]


def test_a_group_of_drafts_alone_is_there_too(run: Run) -> None:
    rows = training(sample_rollouts(run, 1000), 1)
    assert Counter(row["role"] for row in rows) == {"solve": 4, "plan": 2}


@pytest.mark.parametrize("most", [2, 8, 14, 20])
def test_no_more_is_taken_than_asked_for_and_nothing_without_its_drafts(run: Run, most: int) -> None:
    sample = sample_rollouts(run, most)
    rows = training(sample, 0)
    assert 0 < len(rows) <= most // 2
    there = {(row["slot"], row["place"]) for row in rows if row["role"] != "solve"}
    assert all((row["slot"], row["parent"]) in there for row in rows if row["parent"] is not None)
    assert "training rollouts, attempts and drafts, of all steps" in sample.said[1]


def test_a_run_without_drafts_has_no_columns_and_no_control_of_them(run: Run, tmp_path: Path) -> None:
    plain = sample_rollouts(Run(write_finished_run(tmp_path / "plain")), 1000)
    assert draft_facts(run.rollouts(0), None, 4) == []
    assert set(plain.rows[0]) == {
        *("problem", "statement", "prompt", "text", "status", "detail"),
        *("strategy", "label", "advantage", "step", "source"),
    }
    alone, drafted = rollout_browser({"plain": plain}), rollout_browser({"run": sample_rollouts(run, 1000)})
    assert ('id="role"' in alone, 'id="role"' in drafted) == (False, True)
    both = rollout_browser({"plain": plain, "run": sample_rollouts(run, 1000)})
    data = json.loads(both.partition('id="rollouts">')[2].partition("</script>")[0])
    assert {len(column) for column in data["rows"].values()} == {len(data["rows"]["text"])}
    assert data["strings"][data["rows"]["role"][0]] == ""


def test_tokens_by_role_are_on_the_page_and_in_the_terminal(run: Run, tmp_path: Path) -> None:
    table = role_table(run.rows)
    assert [(row[0], row[1], row[2]) for row in table.rows] == [("plan", "4", "28"), ("try", "3", "9"),
                                                                ("solve", "-", "36")]  # fmt: skip
    assert table.rows[0][3:] == ("38.4%", "14", "14")
    page = Path(write_report(run)).read_text()
    assert "Drafts and attempts" in page
    console = Console(record=True, width=120, quiet=False, file=(tmp_path / "out").open("w"))
    show_results(run, console)
    assert "drafts and attempts" in console.export_text()
    plain = Run(write_finished_run(tmp_path / "plain"))
    assert role_table(plain.rows).rows == []
    assert "Drafts and attempts" not in Path(write_report(plain)).read_text()


def test_boards_have_tokens_by_role_as_numbers_and_notebooks_as_a_struct(run: Run) -> None:
    numbers = [flatten(row) for row in run.rows]
    assert {role: sum(row.get(f"decoded_tokens/{role}", 0) for row in numbers) for role in TOKENS} == TOKENS
    assert numbers[0]["drafts/try"] == 3
    assert run.metrics().column("decoded_tokens").to_pylist()[1] == {"plan": 14, "solve": 12, "try": None}


def test_a_bundle_of_steps_with_and_without_drafts_is_read_alike(run: Run, tmp_path: Path) -> None:
    plain = Run(write_scored_run(tmp_path))
    files = {0: plain.store.read(step_key(0)), 1: run.store.read(step_key(1))}
    alone = [*training(sample_rollouts(plain, 1000), 0), *training(sample_rollouts(run, 1000), 1)]
    for step in files:
        (plain.directory / step_key(step)).unlink()
    plain.store.commit(bundle_key(Span(0, 1)), encode_bundle(files))
    bundled = sample_rollouts(Run(plain.uri), 1000)
    assert [*training(bundled, 0), *training(bundled, 1)] == alone


def test_a_notebook_has_drafts_apart_from_attempts(run: Run) -> None:
    assert run.drafts(0).column("role").to_pylist() == ["plan"] * 2 + ["try"] * 3
    assert run.rollouts(0).column("draft_of").to_pylist() == [0, 0, 1, None, 2, 1, None, None]
    assert run.drafts(1).num_rows == 2
    assert run.stored(0).num_rows == STORED
