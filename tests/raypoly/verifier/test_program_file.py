"""Files of programs: what is read, and what is refused with file and line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from raypoly.core.errors import UsageError
from raypoly.data.formats import ProblemFile, Rejected
from raypoly.verifier import GivenProgram
from raypoly.verifier.program_file import ProblemIndex, check_programs, read_programs
from tests.support.program_files import add_problem, write_rows

BAD = Rejected(3, "bad", "test: missing", "P.jsonl")
KNOWN = ProblemIndex(ProblemFile([add_problem(), add_problem(problem_id="7")], [BAD]), Path("P.jsonl"))
FINE = '{"id": 1, "problem_id": "add", "code": "x = 1"}\n'


def test_code_answers_and_nothing_are_programs(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "problem_id": "add", "code": "def add(a, b): ...", "model": "ignored"},
        {"id": 2, "problem_id": 7, "response": "Here:\n```python\ndef add(a, b): return a\n```\nDone."},
        {"id": "c", "problem_id": "add", "code": None},
        {"id": "d", "problem_id": "add", "response": "I can't."},
    ]
    path = write_rows(tmp_path / "C.jsonl", rows)
    assert check_programs(path, KNOWN).programs == 4
    programs = list(read_programs(path, KNOWN))
    assert programs[0] == GivenProgram("a", "add", "def add(a, b): ...")
    assert (programs[1].id, programs[1].problem_id) == (2, "7")
    assert (programs[1].code or "").strip() == "def add(a, b): return a"
    assert programs[2:] == [GivenProgram("c", "add", None), GivenProgram("d", "add", None)]
    assert list(read_programs(path, KNOWN, skip=3)) == programs[3:]


def test_a_packed_file_is_the_same_file(tmp_path: Path) -> None:
    plain, packed = tmp_path / "C.jsonl", tmp_path / "C.jsonl.gz"
    plain.write_text(FINE * 3)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert check_programs(plain, KNOWN) == check_programs(packed, KNOWN)
    assert list(read_programs(plain, KNOWN)) == list(read_programs(packed, KNOWN))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "this is not JSON"),
        ("[1]", "the row is no object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"problem_id": "add", "code": ""}', "the row has no id"),
        ('{"id": true, "problem_id": "add", "code": ""}', "id is true or false, not text or a whole number"),
        ('{"id": 1, "code": ""}', "the row has no problem_id"),
        ('{"id": 1, "problem_id": "add"}', r"the row has no code \(or response\)"),
        ('{"id": 1, "problem_id": "add", "code": 5}', "code is a number, not text or null"),
        ('{"id": 1, "problem_id": "add", "response": ["x"]}', "response is a list, not text or null"),
        ('{"id": 1, "problem_id": "sub", "code": ""}', r"there is no problem 'sub' in P\.jsonl"),
        ('{"id": 1, "problem_id": "bad", "code": ""}', r"'bad' can't be used: P\.jsonl line 3: test: missing"),
        ('{"id": 1, "problem_id": "add", "code": "\udcff"}', "can't decode byte 0xff"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, row: str, said: str) -> None:
    path = tmp_path / "C.jsonl"
    path.write_bytes((FINE + "\n" + row + "\n" + FINE).encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=rf"C\.jsonl line 3: .*({said})"):
        check_programs(path, KNOWN)


def test_a_file_without_programs_or_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "C.jsonl").write_text("\n")
    with pytest.raises(UsageError, match="has no program"):
        check_programs(tmp_path / "C.jsonl", KNOWN)
    with pytest.raises(UsageError, match=r"D\.jsonl.* can't be read"):
        check_programs(tmp_path / "D.jsonl", KNOWN)
    with pytest.raises(UsageError, match="is no plain file"):
        check_programs(tmp_path, KNOWN)
    packed = gzip.compress((FINE * 1000).encode())
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[:-20])
    with pytest.raises(UsageError, match="can't be read"):
        check_programs(tmp_path / "cut.jsonl.gz", KNOWN)
