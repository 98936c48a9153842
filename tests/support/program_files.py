"""Small files of problems and programs, and `raypoly score` as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from raypoly.core.values import Problem, TestSuite

Command = Callable[..., subprocess.CompletedProcess[str]]
"""Takes the words behind `raypoly`."""
ROOT = Path(__file__).resolve().parents[2]
LOOP = "def add(a, b):\n    while True: pass"
ADD: dict[str, Any] = {
    "id": "add",
    "entry_point": "add",
    "tests": {"kind": "calls", "cases": [{"args": [1, 2], "expected": 3}, {"args": [2, 2], "expected": 4}]},
}
CHECKED: dict[str, Any] = {
    "id": "square",
    "entry_point": "square",
    "tests": {"kind": "check", "source": "def check(candidate):\n    assert candidate(3) == 9\n"},
}
BROKEN: dict[str, Any] = {
    "id": "broken",
    "entry_point": "f",
    "tests": {"kind": "check", "source": "def check(candidate):\n    assert ((("},
}


def add_problem(solution: str = "", problem_id: str = "add", reference_seconds: float | None = None) -> Problem:
    cases = json.dumps(ADD["tests"]["cases"])
    tests = TestSuite("calls", cases)
    return Problem(problem_id, "", "add", tests, solution=solution, reference_seconds=reference_seconds)


def right_code(number: int) -> str:
    return f"def add(a, b):\n    return a + b  # {number}"


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def score_command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "raypoly.cli", "score", *map(str, arguments)]


def score_environment(folder: Path) -> dict[str, str]:
    """Environment whose temporary files are below the folder, where a test can find what was left."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}


def descendants(pid: int, generations: int = 100) -> dict[int, str]:
    """Start times of the living processes below `pid`, by process id. With its start time an id is unique."""
    parents: dict[int, int] = {}
    begun: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended while we looked
            if fields[0] != "Z":
                parents[int(entry.name)], begun[int(entry.name)] = int(fields[1]), fields[19]
    found: dict[int, str] = {}
    frontier = {pid}
    while frontier and generations:
        generations -= 1
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found.update((child, begun[child]) for child in frontier)
    return found


def still_running(processes: Mapping[int, str]) -> list[int]:
    """Ids of the processes that still run."""
    alive = []
    for pid, begun in processes.items():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # gone
        if fields[19] == begun and fields[0] != "Z":
            alive.append(pid)
    return alive
