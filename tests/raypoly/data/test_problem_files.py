"""Files of problems, plain and gzipped, good and bad."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.data.formats import problem_of, read_problems, row_of
from tests.raypoly.data.format_rows import HUMANEVAL, MBPP, OWN
from tests.support.small_problems import SHARED


def test_files_are_read_by_content_and_bad_lines_are_named(tmp_path: Path) -> None:
    lines = [
        json.dumps(HUMANEVAL),
        "",
        "{",
        json.dumps(MBPP),
        json.dumps(HUMANEVAL),
        "[" * 100_000,
        json.dumps(OWN | {"x": 1}),
    ]
    content = b"\xef\xbb\xbf" + "\n".join(lines).encode() + b"\n\xff\n"
    for name, data in (("plain.jsonl", content), ("named-plain.jsonl", gzip.compress(content))):
        (tmp_path / name).write_bytes(data)
        file = read_problems(tmp_path / name)
        assert [problem.id for problem in file.problems] == ["HumanEval/0", "11"]
        assert [(row.line, row.id) for row in file.rejected] == [
            (3, None), (5, "HumanEval/0"), (6, None), (7, "add"), (8, None)
        ]  # fmt: skip
        assert "second time" in file.rejected[1].reason


def test_a_line_beyond_the_limit_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raypoly.data.formats.row_files.LONGEST_LINE", 2000)
    (tmp_path / "rows.jsonl").write_text(f'{{"a": "{"x" * 3_000_000}"}}\n{json.dumps(OWN)}\n')
    file = read_problems(tmp_path / "rows.jsonl")
    assert [problem.id for problem in file.problems] == ["add"]
    assert [(row.line, "longer than" in row.reason) for row in file.rejected] == [(1, True)]


def test_files_that_hold_no_problem_are_refused_with_the_first_reason(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    for content, reason in (
        (b"", "empty"),
        (b"PAR1\x00\x01\n", "Parquet"),
        (b"not json\n", "line 1: not JSON"),
        (gzip.compress(json.dumps(OWN).encode())[:-12], "can't be read"),
        (gzip.compress(b"x" * 100)[:12] + b"\xff" * 50, "can't be read"),
    ):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=reason):
            read_problems(path)
    with pytest.raises(UsageError, match="can't be read"):
        read_problems(tmp_path / "absent")


FOLDER = SHARED / "data" / "leetcode"


@pytest.mark.skipif(not FOLDER.exists(), reason="the LeetCodeDataset files are not beside this repository")
def test_every_leetcode_row_is_read_and_comes_back_from_an_own_row() -> None:
    counts = []
    for path in sorted(FOLDER.glob("*.jsonl.gz")):
        file = read_problems(path)
        assert not file.rejected
        assert all(p.prompt and p.prelude and p.solution for p in file.problems)
        assert all(problem_of(row_of(problem), str(path)) == problem for problem in file.problems)
        counts.append(len(file.problems))
    assert counts == [1890, 114]
