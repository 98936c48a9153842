"""`raypoly score` as a process: what it writes, what it says, and what it leaves when it is stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.program_files import (
    ADD,
    BROKEN,
    CHECKED,
    LOOP,
    Command,
    descendants,
    read_rows,
    right_code,
    score_command,
    score_environment,
    still_running,
    write_rows,
)

KERNEL_WITHOUT_WALLS = """
import ctypes, os, platform, struct, sys
unshare = {"x86_64": 272, "aarch64": 97}[platform.machine()]
code = [(0x20, 0, 0, 0), (0x15, 2, 0, unshare), (0x15, 1, 0, 444), (6, 0, 0, 0x7FFF0000), (6, 0, 0, 0x50000 | 38)]
text = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
program = struct.pack("HL", len(code), ctypes.addressof(kept := ctypes.create_string_buffer(text)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Starts a command where the calls `unshare` and `landlock_create_ruleset` do not exist."""
PATIENCE = 300.0
"""Seconds to wait for what takes one on an idle machine."""


def rows(*codes: str | None, problem_id: str = "add") -> list[dict[str, Any]]:
    return [{"id": f"{problem_id}-{n}", "problem_id": problem_id, "code": code} for n, code in enumerate(codes)]


def started(tmp_path: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        score_command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=score_environment(tmp_path),
        cwd=tmp_path,
    )


def wait_for_rows(part: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not part.exists() or len(part.read_text().splitlines()) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_the_end_of(processes: dict[int, str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while alive := still_running(processes):
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


def test_each_program_gets_its_row_in_order_and_a_table_says_how_many(command: Command, tmp_path: Path) -> None:
    problems = write_rows(tmp_path / "P.jsonl", [ADD, CHECKED])
    answer = {"id": 7, "problem_id": "square", "response": "So:\n```python\ndef square(x): return x * x\n```"}
    programs = write_rows(tmp_path / "C.jsonl", [*rows(right_code(0), "def add(a, b): return 3", None), answer])
    ended = command("score", "--problems", problems, "--programs", programs, "--out", "V.jsonl", "--workers", "2")
    assert ended.returncode == 0, ended.stderr
    verdicts = read_rows(tmp_path / "V.jsonl")
    assert [row["id"] for row in verdicts] == ["add-0", "add-1", "add-2", 7]
    assert [row["status"] for row in verdicts] == ["passed", "wrong", "no_code", "passed"]
    assert [row["passed"] for row in verdicts] == [True, False, False, True]
    assert (verdicts[1]["tests_passed"], verdicts[1]["tests_total"]) == (1, 2)
    assert verdicts[3]["problem_id"] == "square"
    assert {"cpu_seconds", "detail", "failure"} <= set(verdicts[0])
    assert "evidence" not in verdicts[0]
    assert "passed" in ended.stdout
    assert "verdicts: V.jsonl" in ended.stdout
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["C.jsonl", "P.jsonl", "V.jsonl"]


def test_rows_alone_go_to_standard_output_with_evidence_where_asked(command: Command, tmp_path: Path) -> None:
    problems, programs = (
        write_rows(tmp_path / "P.jsonl", [ADD]),
        write_rows(tmp_path / "C.jsonl", rows(right_code(0), "def add(")),
    )
    ended = command("score", "--problems", problems, "--programs", programs, "--out", "-", "--evidence")
    assert ended.returncode == 0, ended.stderr
    verdicts = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["status"] for row in verdicts] == ["passed", "error"]
    assert verdicts[0]["evidence"]["canonical"]
    assert verdicts[0]["evidence"]["approach"] == "formula"
    assert verdicts[1]["evidence"] is None


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_a_sentence_and_leaves_nothing_but_the_rows(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    problems = write_rows(tmp_path / "P.jsonl", [ADD])
    programs = write_rows(tmp_path / "C.jsonl", rows(right_code(0), right_code(1), LOOP, LOOP + "\n", right_code(2)))
    arguments = ("--problems", problems, "--programs", programs, "--out", "V.jsonl", "--workers", "2")
    process = started(tmp_path, *arguments, "scorer.cpu_seconds_per_test=60")
    wait_for_rows(tmp_path / "V.jsonl.part", 2, process)
    below = descendants(process.pid)
    assert len(below) >= 2
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert said == "Interrupted. The same command goes on from here.\n"
    wait_for_the_end_of(below)
    left = sorted(entry.name for entry in tmp_path.iterdir())
    assert left == ["C.jsonl", "P.jsonl", "V.jsonl.part", "V.jsonl.part.json"]
    assert [row["id"] for row in read_rows(tmp_path / "V.jsonl.part")] == ["add-0", "add-1"]


def test_a_killed_start_leaves_no_process_and_the_same_command_goes_on(command: Command, tmp_path: Path) -> None:
    problems = write_rows(tmp_path / "P.jsonl", [ADD])
    programs = write_rows(tmp_path / "C.jsonl", rows(right_code(0), right_code(1), LOOP, right_code(2)))
    arguments = ("--problems", problems, "--programs", programs, "--out", "V.jsonl", "scorer.cpu_seconds_per_test=2")
    process = started(tmp_path, *arguments)
    wait_for_rows(tmp_path / "V.jsonl.part", 2, process)
    below = descendants(process.pid)
    process.kill()
    process.communicate()
    wait_for_the_end_of(below)
    kept = read_rows(tmp_path / "V.jsonl.part")[:2]
    ended = command("score", *arguments)
    assert ended.returncode == 0, ended.stderr
    assert "have their verdicts already" in ended.stderr
    verdicts = read_rows(tmp_path / "V.jsonl")
    assert [row["status"] for row in verdicts] == ["passed", "passed", "timeout", "passed"]
    assert verdicts[:2] == kept


def test_validation_lists_what_is_unusable_and_writes_the_rest_with_its_time(command: Command, tmp_path: Path) -> None:
    solved = {**ADD, "solution": right_code(0)}
    wrong = {**ADD, "id": "wrong", "solution": "def add(a, b): return 0"}
    bad = {**ADD, "id": "bad", "entry_point": 7}
    problems = write_rows(
        tmp_path / "P.jsonl", [solved, wrong, bad, CHECKED, {**BROKEN, "solution": "def f(): pass"}, ADD]
    )
    more = ("--out", "exclude.jsonl", "--calibrated", "usable.jsonl")
    ended = command("score", "--problems", problems, "--validate", *more)
    assert ended.returncode == 0, ended.stderr
    excluded = {row["problem_id"]: row for row in read_rows(tmp_path / "exclude.jsonl")}
    assert set(excluded) == {"wrong", "bad", "broken", None}  # the second row of "add" must not take the first along
    assert {row["status"] for row in excluded.values()} == {"wrong", "rejected", "broken"}
    assert all(row["reason"] for row in excluded.values())
    usable = {row["id"]: row for row in read_rows(tmp_path / "usable.jsonl")}
    assert set(usable) == {"add", "square"}
    assert usable["add"]["reference_seconds"] > 0
    for word in ("passed", "wrong", "broken", "rejected", "unchecked"):
        assert word in ended.stdout


def test_tests_that_can_not_be_run_end_the_command_with_a_sentence_behind_all_rows(
    command: Command, tmp_path: Path
) -> None:
    problems = write_rows(tmp_path / "P.jsonl", [ADD, BROKEN, {**ADD, "id": "bad", "entry_point": 7}])
    sample = {"task_id": "bad", "completion": "    return 1\n"}
    broken = rows("def f(): pass", problem_id="broken")
    programs = write_rows(tmp_path / "C.jsonl", [*broken, sample, *rows(right_code(0))])
    ended = command("score", "--problems", problems, "--programs", programs, "--out", "V.jsonl")
    assert ended.returncode == 1
    assert "The tests of 2 problems ('bad' is one) can't be run; raypoly score --validate finds them." in ended.stderr
    verdicts = read_rows(tmp_path / "V.jsonl")
    assert [row["status"] for row in verdicts] == ["infra", "infra", "passed"]
    assert "P.jsonl line 3: entry_point" in verdicts[1]["detail"]


def test_where_programs_can_not_be_confined_nothing_is_started(tmp_path: Path) -> None:
    problems, programs = write_rows(tmp_path / "P.jsonl", [ADD]), write_rows(tmp_path / "C.jsonl", rows(right_code(0)))
    arguments = score_command("--problems", problems, "--programs", programs, "--out", "V.jsonl")
    ended = subprocess.run(
        [sys.executable, "-c", KERNEL_WITHOUT_WALLS, *arguments],
        capture_output=True,
        text=True,
        env={**score_environment(tmp_path), "TMPDIR": "/tmp"},  # a folder that other users may enter
        cwd=tmp_path,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("Programs can't be confined on this machine: ")
    assert ended.stderr.count("\n") == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["C.jsonl", "P.jsonl"]


def test_a_reader_that_goes_away_is_a_sentence(tmp_path: Path) -> None:
    problems = write_rows(tmp_path / "P.jsonl", [ADD])
    programs = write_rows(tmp_path / "C.jsonl", rows(*(right_code(0) for _ in range(5000))))
    process = started(tmp_path, "--problems", problems, "--programs", programs, "--out", "-")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == "standard output was closed by its reader before all rows were written.\n"
    assert process.wait(timeout=PATIENCE) == 1
