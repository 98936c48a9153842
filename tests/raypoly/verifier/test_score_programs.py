"""Scoring as a library call, with sandboxes of its own."""

from __future__ import annotations

import gzip
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, TestSuite, Verdict
from raypoly.data.formats import ProblemFile, Rejected
from raypoly.verifier import GivenProgram, LocalPool, scored
from raypoly.verifier.score_programs import ProblemIndex, by_id, check_programs, read_programs
from tests.support.program_files import LOOP, add_problem, descendants, right_code, still_running, write_rows

QUICK = ScorerConfig(workers=2, cpu_seconds_per_test=1.0)


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool(QUICK) as pool:
        yield pool


def score(problems: Iterable[Problem], programs: Iterable[GivenProgram], config: ScorerConfig = QUICK) -> list[Verdict]:
    with LocalPool(config) as pool:
        return [verdict for _, verdict in scored(pool, by_id(problems), programs)]


def test_a_slow_program_holds_up_no_other(pool: LocalPool) -> None:
    before = pool.done
    verdicts = pool.score((add_problem(), code) for code in [LOOP, *map(right_code, range(10))])
    assert next(verdicts).status == "timeout"
    assert pool.done > before + 1
    assert {verdict.status for verdict in verdicts} == {"passed"}


def test_programs_are_drawn_as_they_are_needed(pool: LocalPool) -> None:
    drawn = 0

    def endless() -> Iterator[tuple[Problem, str]]:
        nonlocal drawn
        while True:
            drawn += 1
            yield add_problem(), right_code(drawn % 5)

    verdicts = pool.score(endless())
    for _ in range(10_000):
        assert next(verdicts).passed
    assert drawn < 20_000


def test_killed_zygotes_change_no_verdict(pool: LocalPool) -> None:
    codes = [right_code(number) if number % 2 else f"def add(a, b): return {number}" for number in range(60)]
    statuses = []
    for number, verdict in enumerate(pool.score((add_problem(problem_id="killed"), code) for code in codes)):
        statuses.append(verdict.status)
        if number in (5, 25):
            for pid in descendants(os.getpid(), generations=1):
                os.kill(pid, signal.SIGKILL)
    assert statuses == ["passed" if number % 2 else "wrong" for number in range(60)]


def test_a_known_solution_sets_the_time_limit() -> None:
    patient = QUICK.model_copy(update={"cpu_seconds_per_test": 30.0})
    (verdict,) = score([add_problem(solution=right_code(0))], [GivenProgram("loop", "add", LOOP)], patient)
    assert verdict.status == "timeout"
    assert verdict.cpu_seconds < 10


def test_an_unknown_problem_and_an_id_given_twice_are_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="problem 'sub', which is not there"):
        score([add_problem()], [GivenProgram("a", "sub", None)])
    with pytest.raises(UsageError, match="Two problems have the id 'add'"):
        score([add_problem(), add_problem(right_code(0))], [])


def test_a_closed_pool_leaves_no_process_not_even_of_a_looping_program() -> None:
    before = set(descendants(os.getpid()))
    with LocalPool(ScorerConfig(workers=2, cpu_seconds_per_test=60)) as pool:
        verdicts = pool.score([(add_problem(), right_code(0)), (add_problem(), LOOP), (add_problem(), LOOP + "\n")])
        next(verdicts)
        new = {pid: begun for pid, begun in descendants(os.getpid()).items() if pid not in before}
        assert len(new) >= 2
    assert still_running(new) == []


REJECTED = Rejected(3, "bad", "test: missing", "P.jsonl")
KNOWN = ProblemIndex(ProblemFile([add_problem(), add_problem(problem_id="7")], [REJECTED]), Path("P.jsonl"))
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


BODY = Problem("HumanEval/1", "", "f", TestSuite("check", ""), prefix="def f(n):\n    # double\n")


def test_samples_of_human_eval_and_evalplus_are_programs(tmp_path: Path) -> None:
    continued = replace(BODY, id="base", answer="completion")
    known = ProblemIndex(ProblemFile([BODY, continued, add_problem(problem_id="2")], []), Path("P.jsonl"))
    rows = [
        {"task_id": "HumanEval/1", "completion": "    return 2 * n\n"},
        {"task_id": "HumanEval/1", "solution": "def f(n): return n", "completion": "pass"},
        {"task_id": "Mbpp/2", "solution": "def add(a, b): return a"},
        {"task_id": "base", "completion": "    return 2 * n\nprint(1)\n"},
        {"task_id": "HumanEval/1", "id": "own", "completion": None},
    ]
    programs = list(read_programs(write_rows(tmp_path / "C.jsonl", rows), known))
    assert [program.id for program in programs] == [1, 2, 3, 4, "own"]
    assert [program.problem_id for program in programs] == ["HumanEval/1", "HumanEval/1", "2", "base", "HumanEval/1"]
    assert [program.code for program in programs[:3]] == [
        "    return 2 * n\n", "def f(n): return n", "def add(a, b): return a"
    ]  # fmt: skip
    assert (programs[3].code or "").startswith(BODY.prefix + "    return 2 * n\n")
    assert programs[4].code is None


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
        ('{"id": 1, "problem_id": "add"}', r"the row has no code \(or response"),
        ('{"task_id": "add"}', r"the row has no code \(or response"),
        ('{"task_id": ["add"], "completion": ""}', "task_id is a list, not text or a whole number"),
        ('{"task_id": "add", "solution": 5}', "solution is a number, not text or null"),
        ('{"task_id": "sub", "completion": ""}', r"there is no problem 'sub' in P\.jsonl"),
        ('{"id": 1, "problem_id": "add", "code": 5}', "code is a number, not text or null"),
        ('{"id": 1, "problem_id": "add", "response": ["x"]}', "response is a list, not text or null"),
        ('{"id": 1, "problem_id": "sub", "code": ""}', r"there is no problem 'sub' in P\.jsonl"),
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
