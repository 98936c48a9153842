"""Groups that parts are tried on: right and wrong programs, no program, a timeout, gibberish, equal programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from raypoly.core import values
from raypoly.core.errors import UsageError
from raypoly.core.values import Draft, Evidence, Failure, Group, Labels, Problem, Rollout, Verdict
from raypoly.data.puzzles.puzzle_language import all_puzzles

SECRET = "hidden-4711"
"""Is in the tests that decide and in the solution, which no prompt may show."""
_LOOP = "def f(n):\n    total = 0\n    for i in range(n):\n        total += 2\n    return total"
PROGRAMS: Sequence[tuple[str, values.Status, str]] = (
    (_LOOP, "passed", "for"),
    ("def f(n):\n    return sum(map(lambda i: 2, range(n)))", "passed", "map"),
    (_LOOP.replace("+= 2", "+= 1"), "wrong", "for"),
    ("def f(n):\n    return 2 + f(n - 1) if n else 0", "passed", "recursion"),
    ("", "no_code", ""),
    ("def f(n):\n    while n:\n        n += 1", "timeout", "while"),
    ("def f(n):\n    return räksmörgås 🦐", "error", ""),
    (_LOOP, "passed", "for"),
)


def made_problems() -> Sequence[Problem]:
    """A problem, and a puzzle."""
    plain = Problem("double", "Write f(n), which doubles n.", "f", values.TestSuite("calls", SECRET), solution=SECRET)
    puzzle = all_puzzles()[0]
    own: dict[str, Any] = {"prefix": puzzle.signature, "source": "puzzles", "metadata": {"words": puzzle.words}}
    return plain, replace(plain, id="puzzle", prompt=puzzle.prompt, answer="completion", **own)


def made_rollout(place: int, text: str) -> Rollout:
    tokens = np.arange(3, 4 + len(text) % 40 + place, dtype=np.int32)
    logprobs = -np.linspace(0.1, 2.0, len(tokens), dtype=np.float32)
    mask = np.arange(len(tokens)) % 4 != 1 if place % 2 else None  # every second one with observations
    logprobs = logprobs if mask is None else np.where(mask, logprobs, np.float32(np.nan))
    return Rollout(np.arange(5, dtype=np.int32), tokens, logprobs, text, "stop", 1000 + place, 7, mask)


def made_verdict(status: values.Status, construct: str) -> Verdict:
    source = f"def f(a):\n    {construct}"
    evidence = Evidence(source, (construct,), {construct: 40.0}, construct) if construct else None
    failure = Failure(2, "f(3)", "3", "6") if status in ("wrong", "error") else None
    return Verdict(status, 4 if status == "passed" else int(status == "wrong"), 4, 0.1, "", evidence, failure)


def made_group(size: int, start: int = 0, step: int = 1) -> Group:
    """N rollouts with verdicts and labels, of every so many programs from one on, and two drafts."""
    chosen = [PROGRAMS[(start + step * place) % len(PROGRAMS)] for place in range(size)]
    rollouts = [made_rollout(place, f"```python\n{it[0]}\n```" if it[0] else "") for place, it in enumerate(chosen)]
    ids = np.array([len(construct) for *_, construct in chosen], np.int32)
    found = {"score": tuple(made_verdict(*it[1:]) for it in chosen), "judge": Labels(ids, ids == 0, "made-1")}
    drafts = tuple(Draft(made_rollout(90 + d, f"A: loop {d} times\nB: use recursion"), "plan") for d in range(2))
    return Group(3, size, "double", tuple(rollouts), found, drafts, (np.arange(size) % 2).astype(np.int32))


def made_groups() -> Iterator[tuple[str, Group]]:
    """Each in words, and itself."""
    for size, start, step in ((1, 0, 1), (1, 4, 1), (2, 0, 8), (2, 1, 1), (3, 4, 8), (8, 0, 1)):
        group = made_group(size, start, step)
        yield f"{size} programs ({', '.join(verdict.status for verdict in group.verdicts or ())})", group


def turned(size: int) -> list[int]:
    """Places in another order."""
    return [*range(0, size, 2), *range(1, size, 2)][::-1]


def in_order(rows: Any, order: Any) -> Any:
    """These rows of a tuple, array or tensor."""
    if rows is None:
        return None
    return tuple(rows[place] for place in order) if isinstance(rows, tuple) else rows[order]


def with_order(whole: Any, order: Any, *names: str) -> Any:
    """A dataclass with these rows of some fields."""
    return replace(whole, **{name: in_order(getattr(whole, name), order) for name in names})


def taken_sizes(check: Callable[[int], None]) -> Sequence[int]:
    """The four smallest numbers of rollouts that are not refused."""
    found = []
    for size in (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64):
        try:
            check(size)
            found.append(size)
        except UsageError:
            continue
    return found[:4]
