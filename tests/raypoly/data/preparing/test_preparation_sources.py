"""Files of a preparation: every row is loaded or set aside with a reason."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raypoly.core.errors import UsageError
from raypoly.data.preparing import load_sources, output_files
from raypoly.data.preparing.prepare_config import SourceConfig
from tests.support.preparation_rows import problem_row, write_rows, written_bytes


def reasons(path: Path, **keys: object) -> list[tuple[str | None, str]]:
    loaded = load_sources({"mine": SourceConfig(path=str(path), **keys)})  # type: ignore[arg-type]
    return [(decision.problem_id, decision.reason) for decision in loaded.decisions]


def test_each_row_is_loaded_or_set_aside_with_its_place_and_a_reason(tmp_path: Path) -> None:
    rows = [problem_row("a"), "{", {"id": "nobody"}, problem_row("a", 1), problem_row("b", 2)]
    loaded = load_sources({"mine": SourceConfig(path=str(write_rows(tmp_path / "rows.jsonl", rows)), licence="MIT")})
    assert [it.id for it in loaded.candidates] == ["a", "b"]
    assert loaded.candidates[1].facts.row == 5
    assert loaded.candidates[1].facts.licence == "MIT"
    told = [decision.reason for decision in loaded.decisions]
    assert told[0] == told[4] == ""
    assert told[1].startswith("not JSON")
    assert "no known format" in told[2]
    assert loaded.decisions[2].problem_id == "nobody"
    assert "appears a second time" in told[3]


def test_a_window_of_days_includes_both_ends(tmp_path: Path) -> None:
    days = ("2025-02-28", "2025-03-01", "2025-04-06", "2025-04-07")
    rows = [problem_row(day, number, estimated_date=f"{day}T12:00:00") for number, day in enumerate(days)]
    path = write_rows(tmp_path / "rows.jsonl", [*rows, problem_row("timeless", 5)])
    found = reasons(path, since=date(2025, 3, 1), until=date(2025, 4, 6))
    assert [name for name, reason in found if not reason] == ["2025-03-01", "2025-04-06"]
    assert found[0][1] == "it is of 2025-02-28, before 2025-03-01"
    assert found[4][1] == "its row names no day, and a window was asked for"


def test_a_format_and_a_split_leave_others_out(tmp_path: Path) -> None:
    rows = [
        problem_row("a", split="train"),
        problem_row("b", 1, split="test"),
        {"id": "own", "tests": {"kind": "check", "source": ""}},
    ]
    found = reasons(write_rows(tmp_path / "rows.jsonl", rows), format="LeetCodeDataset", split="train")
    assert found[0] == ("a", "")
    assert found[1] == ("b", "its split is test, not train")
    assert found[2][1] != ""


def test_rows_of_parquet_are_those_of_json_lines(tmp_path: Path) -> None:
    rows = [problem_row("a", tags=["x", "y"], difficulty="Hard"), problem_row("b", 1, tags=["z"], difficulty="Easy")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    plain = load_sources({"mine": SourceConfig(path=str(write_rows(tmp_path / "rows.jsonl", rows)))})
    table = load_sources({"mine": SourceConfig(path=str(tmp_path / "rows.parquet"))})
    assert table.candidates == plain.candidates
    assert [it.problem for it in table.candidates] == [it.problem for it in plain.candidates]
    assert table.candidates[0].facts.tags == ("x", "y")
    assert table.candidates[0].facts.difficulty == "hard"


def test_two_sources_that_number_their_problems_alike_keep_both(tmp_path: Path) -> None:
    one, another = (write_rows(tmp_path / f"{n}.jsonl", [problem_row("1", n), problem_row("1", n)]) for n in (3, 4))
    loaded = load_sources({"one": SourceConfig(path=str(one)), "another": SourceConfig(path=str(another))})
    assert [it.id for it in loaded.candidates] == ["1", "another/1"]
    assert loaded.decisions[3].reason == "'another/1' appears a second time; ids have to differ"


def test_facts_are_found_in_older_rows_too(tmp_path: Path) -> None:
    old = problem_row("a", meta={"difficulty": "Medium", "question_date": "2020-05-06"}, tags="['Array', 'Graph']")
    (it,) = load_sources({"mine": SourceConfig(path=str(write_rows(tmp_path / "rows.jsonl", [old])))}).candidates
    assert (it.facts.difficulty, it.facts.date, it.facts.tags) == ("medium", "2020-05-06", ("Array", "Graph"))


def test_what_a_row_says_of_itself_may_be_anything(tmp_path: Path) -> None:
    odd = {"tags": "[{[]: 1}]", "difficulty": "\ud800", "estimated_date": "9" * 5000, "meta": ["x"], "extra_info": 3}
    more = {"tags": ["\udfff", 3, "kept"], "difficulty": [], "estimated_date": None, "meta": {"tags": 1}}
    rows = [problem_row("a", **odd), problem_row("b", 1, **more), {"id": "\ud800", "tests": 1}]
    loaded = load_sources({"mine": SourceConfig(path=str(write_rows(tmp_path / "rows.jsonl", rows)), licence="MIT")})
    assert [it.facts.tags for it in loaded.candidates] == [(), ("kept",)]
    assert [(it.facts.difficulty, it.facts.date) for it in loaded.candidates] == [(None, None)] * 2
    assert loaded.decisions[2].reason != ""
    written_bytes(output_files.write_parquet, loaded.candidates)
    written_bytes(output_files.write_jsonl, loaded.candidates)
    output_files.encode_exclusions(loaded.decisions)


def test_a_file_without_a_usable_row_is_named(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ["{", "}"])
    with pytest.raises(UsageError, match=r"The file of mine, .*rows\.jsonl, has no usable row: row 1: not JSON"):
        reasons(path)
    with pytest.raises(UsageError, match=r"The file of mine, .*missing\.jsonl, can't be read: No such file"):
        reasons(tmp_path / "missing.jsonl")
