"""Small problems whose tests are calls or a check, and the folder of shared data."""

import json
from pathlib import Path
from typing import Any

from raypoly.core.values import Problem, TestSuite

SHARED = Path(__file__).parents[3] / "shared"


def calls(*cases: tuple[Any, ...], entry_point: str = "f", prelude: str = "") -> Problem:
    """Cases are (args, expected) or (args, expected, budget)."""
    rows = [{"args": case[0], "expected": case[1], "budget": case[2] if len(case) > 2 else None} for case in cases]
    return Problem("p", "", entry_point, TestSuite("calls", json.dumps(rows)), prelude=prelude)


def check(source: str, entry_point: str = "f", prelude: str = "") -> Problem:
    return Problem("p", "", entry_point, TestSuite("check", source), prelude=prelude)


def budgeted(steps: int = 100, elements: int = 50, depth: int = 10) -> Problem:
    """Ask for the sum of squares below 1000. Every honest program exceeds the steps of this budget."""
    budget = {"steps": steps, "elements": elements, "depth": depth}
    return calls(([3], 5), ([1000], sum(i * i for i in range(1000)), budget))
