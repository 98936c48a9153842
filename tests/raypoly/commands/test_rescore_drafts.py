"""Runs with drafts are scored and labelled again as any other: by their attempts, and by the tests that decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.analysis.run import Run
from raypoly.commands.judge_label import relabel
from raypoly.commands.score_run import rescore
from raypoly.run.store.sealed_files import encode_table, seal
from tests.support.drafted_run import write_drafted_run
from tests.support.gold_rows import read_rows
from tests.support.scored_run import (
    NAMES,
    as_judged,
    as_scored,
    evaluation_payload,
    evaluation_table,
    row_of,
    without_labels,
    write_problems,
    write_scored_run,
)


def test_attempts_are_scored_again_and_groups_without_any_are_left_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rescore(write_drafted_run(tmp_path), str(tmp_path / "d.jsonl"), None, [], workers=1)
    rows = read_rows(tmp_path / "d.jsonl")
    groups = [row for row in rows if "number" not in row and row["of"].startswith("rollouts/step")]
    assert [(group["slot"], len(group["now"]["statuses"])) for group in groups] == [(0, 4), (1, 4), (0, 4)]
    assert not any(group["changed"] for group in groups)
    assert "28 rollouts of 4 problems in 2 steps and 1 evaluation: none differs" in capfd.readouterr().out


def test_attempts_are_labelled_again(tmp_path: Path) -> None:
    relabel(write_drafted_run(tmp_path, as_scored, as_judged), str(tmp_path / "l.jsonl"), None, [])
    assert [(row["step"], row["slot"], row["now"]) for row in read_rows(tmp_path / "l.jsonl")] == [
        (0, 0, [1, 1, 0, 2]), (0, 1, [1, 1, 0, 2]), (1, 0, [1, 1, 0, 2])
    ]  # fmt: skip


@pytest.mark.parametrize(("scaffold", "differing"), [("repair", 0), ("direct", 18)])
def test_a_test_that_the_scaffold_showed_decides_nothing(tmp_path: Path, scaffold: str, differing: int) -> None:
    """The first test of each problem is wrong today. `repair` showed it, so that the second one alone decides."""
    shown = ["scaffold.public_tests=1"] if scaffold == "repair" else []
    run = write_scored_run(tmp_path, as_scored, without_labels, None, f"scaffold.name={scaffold}", *shown)
    wrong = write_problems(tmp_path / "wrong.jsonl", [row_of(name, expected=7) for name in NAMES])
    rescore(run, str(tmp_path / "d.jsonl"), wrong, [], workers=1)
    assert sum(len(row.get("changed", ())) for row in read_rows(tmp_path / "d.jsonl")) == differing


def write_evaluation(run: Run, payload: dict[str, Any], table: pa.Table) -> None:
    """As `raypoly evaluate --run` does."""
    run.store.commit("evaluations/test-step-000002-20261121T100000.json", seal(payload))
    run.store.commit("evaluations/test-step-000002-20261121T100000.parquet", encode_table(table, {}))


def test_an_evaluation_by_several_scaffolds_has_the_numbers_of_the_first(tmp_path: Path) -> None:
    run = Run(write_drafted_run(tmp_path))
    own, other = (evaluation_table(names, as_scored) for names in (NAMES[:2], NAMES[:2]))
    named = [each.append_column("scaffold", pa.array([name] * each.num_rows)) for each, name in
             ((own, "repair"), (other, "direct"))]  # fmt: skip
    payload = evaluation_payload(NAMES[:2], as_scored) | {"step": 2, "split": "test", "samples": 8, "set_aside": {}}
    payload |= {"scaffold": "repair", "block": 1, "shown_tests": 1, "scaffolds": [{"scaffold": "direct"}]}
    write_evaluation(run, payload, pa.concat_tables(named))
    rescore(run.uri, str(tmp_path / "d.jsonl"), None, [], workers=1)
    rows = {(row["of"], row["number"]): row for row in read_rows(tmp_path / "d.jsonl") if "number" in row}
    found = rows["test after step 2", "pass@1"]
    assert (found["groups"], found["reported"], found["then"], found["now"]) == (2, 0.625, 0.625, 0.625)


def test_the_numbers_of_an_evaluation_in_blocks_are_those_of_its_blocks(tmp_path: Path) -> None:
    """Of eight samples the first five pass, so both blocks of four begin with one that passes."""
    run = Run(write_drafted_run(tmp_path))
    payload = evaluation_payload(NAMES[:2], as_scored) | {"step": 2, "split": "test", "samples": 8, "set_aside": {}}
    payload |= {"scaffold": "tuple", "block": 4, "pass_at_k": dict.fromkeys(("1", "2", "4", "8"), 1.0)}
    write_evaluation(run, payload, evaluation_table(NAMES[:2], as_scored))
    rescore(run.uri, str(tmp_path / "d.jsonl"), None, [], workers=1)
    rows = {(row["of"], row["number"]): row for row in read_rows(tmp_path / "d.jsonl") if "number" in row}
    for k, value in payload["pass_at_k"].items():
        found = rows["test after step 2", f"pass@{k}"]
        assert (found["then"], found["now"]) == (pytest.approx(value), pytest.approx(value)), k


def test_counts_by_problem_are_those_of_the_first_scaffold(tmp_path: Path) -> None:
    table = evaluation_table(NAMES[:2], as_scored)
    both = pa.concat_tables(
        [table.append_column("scaffold", pa.array([name] * table.num_rows)) for name in ("tuple", "direct")]
    )
    assert ProblemCounts.of(both) == ProblemCounts.of(table)
