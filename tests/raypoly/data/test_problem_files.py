"""Files of problems, plain and gzipped, good and bad."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.data.formats import ProblemStream, problem_of, read_problems, row_of
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


def test_an_array_is_read_as_its_rows_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[object] = [OWN | {"id": f"{number}, \u00e9[{{", "prompt": "x" * number} for number in range(200)]
    rows[3:3] = [7, {"id": "bad"}]
    for name, text in (("a.json", json.dumps(rows)), ("b.json", json.dumps(rows, indent=1, ensure_ascii=False))):
        for size in (7, 100, 1 << 20):
            monkeypatch.setattr("raypoly.data.formats.row_files._CHUNK", size)
            content = f"\n {text}\n".encode()
            for path, data in ((tmp_path / name, content), (tmp_path / f"{name}.gz", gzip.compress(content))):
                path.write_bytes(data)
                file = read_problems(path)
                assert [problem.id for problem in file.problems] == [row["id"] for row in rows if "tests" in str(row)]
                assert [row.line for row in file.rejected] == [4, 5]
                assert ProblemStream(path).rows() == 202


def test_an_array_that_breaks_off_gives_the_rows_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raypoly.data.formats.row_files.LONGEST_LINE", 20_000)
    monkeypatch.setattr("raypoly.data.formats.row_files._CHUNK", 100)
    whole = json.dumps([OWN, *(OWN | {"id": f"more {number}"} for number in range(99))])
    for content, reason in (
        (whole[:-9].encode(), "not JSON"),
        (whole[:-1].encode(), "not JSON"),
        (f'{whole[:-1]}, {{"a": "{"x" * 90_000}"}}]'.encode(), "longer than"),
        (whole[:-1].encode() + b', "\xff"]', "can't decode byte 0xff"),
    ):
        (tmp_path / "rows.json").write_bytes(content)
        file = read_problems(tmp_path / "rows.json")
        assert file.problems[0].id == "add"
        assert reason in file.rejected[-1].reason


def test_a_folder_has_its_arrays_read_and_other_json_left(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps([OWN]))
    (tmp_path / "dataset_info.json").write_text('{"features": {}}')
    (tmp_path / "more.jsonl").write_text(json.dumps(OWN | {"id": "more"}))
    assert [problem.id for problem in read_problems(tmp_path).problems] == ["more", "add"]


def test_a_row_of_very_many_values_is_set_aside_and_marks_in_a_text_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raypoly.data.formats.long_integers.MOST_VALUES", 1000)
    texts = OWN | {"id": "text", "prompt": '[,{\\"' * 5000}
    for row in ({"id": "list", "tests": [[]] * 1001}, {"id": "object", "tests": {str(n): n for n in range(1001)}}):
        (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(texts)}\n")
        (tmp_path / "rows.json").write_text(json.dumps([texts, row | {"more": "x" * (3 << 20)}]))
        for name in ("rows.jsonl", "rows.json"):
            file = read_problems(tmp_path / name)
            assert [problem.id for problem in file.problems] == ["text"]
            assert file.rejected[0].reason == "more than 1,000 values, which would take too much memory"


def test_endless_rows_that_can_not_be_used_end_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raypoly.data.formats.MOST_REJECTED", 1000)
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 5000))
    with pytest.raises(UsageError, match="more than 1,000 rows that can't be used, the first in line 1: no known"):
        read_problems(tmp_path / "rows.jsonl.gz")


FOLDER = SHARED / "data" / "leetcode"


@pytest.mark.skipif(not FOLDER.exists(), reason="the LeetCodeDataset files are not beside this repository")
def test_every_leetcode_row_is_read_and_comes_back_from_an_own_row() -> None:
    counts = []
    for path in sorted(FOLDER.glob("*.jsonl.gz")):
        file = read_problems(path)
        assert not file.rejected
        assert all(p.prompt and p.prelude and p.solution and p.tests.kind == "check" for p in file.problems)
        assert all(problem_of(row_of(problem), str(path)) == problem for problem in file.problems)
        counts.append(len(file.problems))
    assert counts == [1890, 114]
