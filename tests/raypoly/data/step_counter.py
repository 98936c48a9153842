"""A plain, unprotected copy of the budget counters, to check budgets by really running solutions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

ENDLESS = 20_000
"""Steps after which a solution is taken to run for ever."""
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")
CONTAINERS = (list, dict, set, tuple)


@dataclass
class Counts:
    steps: int = 0
    elements: int = 0
    depth: int = 0

    def within(self, budget: dict[str, int] | None) -> bool:
        return all(getattr(self, name) <= limit for name, limit in (budget or {}).items())


def compile_body(prelude: str, program: str) -> Callable[..., Any]:
    """The function `f` of a program."""
    space: dict[str, Any] = {}
    exec(prelude, space)
    exec(compile(program, "<candidate>", "exec"), space)
    found: Callable[..., Any] = space["f"]
    return found


def run(function: Callable[..., Any], args: list[Any]) -> tuple[Any, Counts]:
    """What the function returns, and what it used. Raises `TimeoutError` where it seems to run for ever."""
    counts, live = Counts(), []

    def held() -> int:
        return sum(len(v) for frame in live for v in frame.f_locals.values() if type(v) in CONTAINERS)

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_name
        if counts.steps > ENDLESS:
            raise TimeoutError
        if frame.f_code.co_filename != "<candidate>":
            return None
        if event == "call":
            if name in COMPREHENSIONS:
                return trace
            counts.steps += 1
            if name != "<genexpr>":
                live.append(frame)
                counts.depth = max(counts.depth, len(live))
            return trace
        if name in COMPREHENSIONS:
            if event == "return" and arg is not None:
                counts.elements = max(counts.elements, len(arg))
            return trace
        if event == "line" and not name.startswith("<"):
            counts.steps += 1
        if not name.startswith("<"):
            counts.elements = max(counts.elements, held())
        if event == "return" and name != "<genexpr>":
            live.pop()
        return trace

    sys.settrace(trace)
    try:
        return function(*args), counts
    finally:
        sys.settrace(None)
