"""A window of dates takes the problems of both its ends and of all days between."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.data import build_problem_set
from raypoly.data.formats import problem_of
from tests.raypoly.data.source_rows import CODEFORCES, STDIN, TACO, V3, livecodebench

DAYS = {"a": "2025-01-31T00:00:00", "b": "2025-02-01T00:00:00", "c": "2025-02-23T14:30:00", "d": "2025-02-24"}


def ids(folder: Path, **window: str) -> set[str]:
    """Of LiveCodeBench's problems of `DAYS` and of one without a date, those that a window leaves."""
    rows = [livecodebench(name, "", STDIN, "[]", {}) | {"contest_date": day} for name, day in DAYS.items()]
    rows.append(livecodebench("undated", "", STDIN, "[]", {}) | {"contest_date": None})
    (folder / "test6.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = {"source": "jsonl", "path": str(folder / "test6.jsonl"), "validation": 0, "test": 0}
    problems = build_problem_set(ProblemsConfig.model_validate(given | window)).splits["train"]
    return {problem.id.removeprefix("lcb-") for problem in problems}


def test_both_ends_belong_to_the_window(tmp_path: Path) -> None:
    assert ids(tmp_path, since="2025-02-01", until="2025-02-23") == {"b", "c"}
    assert ids(tmp_path, since="2025-02-24") == {"d"}
    assert ids(tmp_path, until="2025-01-31") == {"a"}


def test_without_a_window_undated_problems_stay_and_with_one_they_are_counted_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert ids(tmp_path) == {*DAYS, "undated"}
    ids(tmp_path, since="2025-02-01")
    assert "leave out 2 of 5 problems, 1 of them without a date" in caplog.text
    with pytest.raises(UsageError, match="no problem to train on"):
        ids(tmp_path, since="2030-01-01")


def test_each_source_that_gives_a_date_has_it_as_a_day() -> None:
    assert problem_of(V3 | {"estimated_date": "2024-08-04"}).metadata["date"] == "2024-08-04"
    assert problem_of(V3 | {"estimated_date": date(2024, 8, 4)}).metadata["date"] == "2024-08-04"
    assert problem_of(TACO).metadata["date"] == "2021-07-05"
    assert problem_of(CODEFORCES | {"contest_start": 1740787200}).metadata["date"] == "2025-03-01"
    for nonsense in ("yesterday", "2025-02-30", 7, None, ["2025-01-01"]):
        assert "date" not in problem_of(V3 | {"estimated_date": nonsense}).metadata


def test_a_window_is_given_by_days() -> None:
    given = ["problems.source=jsonl", "problems.path=x", "problems.since=2025-02-01", "problems.until='2025-05-31'"]
    problems = load(None, given, lambda text: None).problems
    assert (problems.since, problems.until) == ("2025-02-01", "2025-05-31")
    for wrong in ("2025-02-30", "soon", "20250201"):
        with pytest.raises(UsageError, match=r"problems\.since"):
            load(None, [f"problems.since={wrong}"], lambda text: None)
