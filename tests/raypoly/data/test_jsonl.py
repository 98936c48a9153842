"""Rows of every format become training problems; rows that can't, and those on an exclusion list, are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.data import ProblemSet, build_problem_set
from raypoly.data.problem_set import describe_splits


def row(name: str, **changes: object) -> dict[str, object]:
    return {
        "task_id": name,
        "prompt": "import math\n",
        "starter_code": "class Solution:\n    def f(self, n):",
        "entry_point": "Solution().f",
        "test": "def check(candidate):\n    assert candidate(n=1) == 1\n",
        "query": f"Solve {name}.",
    } | changes


def load(path: Path, lines: list[object], validation: int = 1, test: int = 1) -> ProblemSet:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text)
    return build_problem_set(ProblemsConfig(source="jsonl", path=str(path), validation=validation, test=test))


def test_a_row_becomes_a_problem_with_prelude_and_check(tmp_path: Path) -> None:
    (problem,) = load(tmp_path / "rows.jsonl", [row("one")], validation=0, test=0).splits["train"]
    assert (problem.id, problem.prompt, problem.prelude) == ("one", "Solve one.", "import math\n")
    assert (problem.entry_point, problem.answer, problem.tests.kind) == ("Solution().f", "fenced", "check")


def test_splits_are_disjoint_and_independent_of_row_order(tmp_path: Path) -> None:
    rows: list[object] = [row(f"t{i}") for i in range(20)]
    first = load(tmp_path / "a.jsonl", rows, validation=5, test=5)
    second = load(tmp_path / "b.jsonl", rows[::-1], validation=5, test=5)
    assert first.hash == second.hash
    ids = [p.id for split in first.splits.values() for p in split]
    assert len(ids) == len(set(ids)) == 20
    assert len(first.splits["test"]) == len(first.splits["validation"]) == 5


def test_validation_and_test_may_have_files_of_their_own(tmp_path: Path) -> None:
    places = {}
    for name, count in (("train", 6), ("validation", 3), ("test", 2)):
        places[name] = tmp_path / f"{name}.jsonl"
        rows = [row(f"{name}{i}", date="2025-01-01" if name == "train" else "2025-06-01") for i in range(count)]
        places[name].write_text("\n".join(map(json.dumps, rows)))
    asked = {"source": "jsonl", "path": str(places["train"]), "validation": 2, "test": 64}
    config = ProblemsConfig(**asked, test_path=str(places["test"]))
    found = build_problem_set(config)
    assert {name: len(split) for name, split in found.splits.items()} == {"test": 2, "validation": 2, "train": 4}
    assert {p.id for p in found.splits["test"]} == {"test0", "test1"}
    said = "8 (jsonl, content " + found.hash[:12] + "): 4 to train on, 2 for validation, 2 for test (held out by "
    assert describe_splits(found, config) == said + "problems.validation)"
    both = ProblemsConfig(**asked, validation_path=str(places["validation"]), test_path=str(places["test"]))
    assert {name: len(split) for name, split in build_problem_set(both).splits.items()} == {
        "test": 2,
        "validation": 3,
        "train": 6,
    }
    assert describe_splits(build_problem_set(both), both).endswith("6 to train on, 3 for validation, 2 for test")
    excluded = tmp_path / "excluded.jsonl"
    excluded.write_text("\n".join(json.dumps({"problem_id": i, "reason": "wrong"}) for i in ("test0", "train1")))
    less = build_problem_set(both.model_copy(update={"exclude": str(excluded)}))
    assert [len(less.splits[name]) for name in ("train", "validation", "test")] == [5, 3, 1]
    twice = ProblemsConfig(**asked, test_path=str(places["train"]))
    with pytest.raises(UsageError, match=r"train\d is in (train|validation) and in test: take it out of one"):
        build_problem_set(twice)


def test_bad_rows_are_named_by_file_line_and_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows: list[object] = [row("one"), "{not json", row("two", test="assert True"), row("one"), {"task_id": "x"}]
    problems = load(tmp_path / "rows.jsonl", rows, validation=0, test=0)
    assert [p.id for p in problems.splits["train"]] == ["one"]
    reports = [record.getMessage() for record in caplog.records]
    assert [f"line {n}" in text for n, text in zip((2, 3, 4, 5), reports, strict=True)] == [True] * 4
    assert "rows.jsonl" in reports[0]
    assert "check(candidate)" in reports[1]
    assert "second time" in reports[2]
    assert "entry_point" in reports[3]


def test_rows_without_a_question_are_left_out_of_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    problems = load(tmp_path / "rows.jsonl", [row("one"), row("two", query="")], validation=0, test=0)
    assert [p.id for p in problems.splits["train"]] == ["one"]
    assert "1 of 2 problems are left out, whose rows have no text to ask the policy with, such as two" in caplog.text
    with pytest.raises(UsageError, match="no problem to train on"):
        load(tmp_path / "rows.jsonl", [row("two", query="")], validation=0, test=0)


def excluding(folder: Path, lines: list[object]) -> ProblemSet:
    """Problems t0 to t4 without those that an exclusion list of these lines names."""
    rows, listed = folder / "rows.jsonl", folder / "exclude.jsonl"
    rows.write_text("\n".join(json.dumps(row(f"t{i}")) for i in range(5)))
    listed.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    config = ProblemsConfig(source="jsonl", path=str(rows), exclude=str(listed), validation=0, test=0)
    return build_problem_set(config)


def test_problems_on_the_exclusion_list_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    everything = excluding(tmp_path, [])
    assert len(everything.splits["train"]) == 5
    lines: list[object] = [
        {"problem_id": "t1", "reason": "wrong", "status": "wrong"},
        "",
        {"problem_id": "x", "reason": ""},
    ]
    problems = excluding(tmp_path, lines)
    assert {p.id for p in problems.splits["train"]} == {"t0", "t2", "t3", "t4"}
    assert problems.hash != everything.hash
    assert "leaves out 1 of 5 problems" in caplog.text


@pytest.mark.parametrize("line", ["{", {"problem_id": "t1"}, {"reason": "wrong"}, {"problem_id": [], "reason": ""}])
def test_a_bad_row_of_the_exclusion_list_is_named(tmp_path: Path, line: object) -> None:
    with pytest.raises(UsageError, match=r"problems\.exclude=.*line 2"):
        excluding(tmp_path, [{"problem_id": "t1", "reason": ""}, line])


def test_a_missing_exclusion_list_and_one_that_leaves_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no problem to train on"):
        excluding(tmp_path, [{"problem_id": f"t{i}", "reason": "wrong"} for i in range(5)])
    absent = str(tmp_path / "absent.jsonl")
    with pytest.raises(UsageError, match=r"absent\.jsonl can't be read"):
        build_problem_set(ProblemsConfig(source="jsonl", path=str(tmp_path / "rows.jsonl"), exclude=absent))


def test_missing_files_and_oversized_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        build_problem_set(ProblemsConfig(source="jsonl", path=str(tmp_path / "absent.jsonl")))
    with pytest.raises(UsageError, match=r"problems\.path=FILE"):
        build_problem_set(ProblemsConfig(source="jsonl"))
    with pytest.raises(UsageError, match=r"set problems\.validation=0 problems\.test=0"):
        load(tmp_path / "rows.jsonl", [row("one"), row("two")])
