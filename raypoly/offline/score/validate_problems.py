"""Check a data set by its own solutions: what does not pass its own tests is no problem to train on.

for found in validate(problems):
    print(found.problem.id, found.reason or "usable")
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from raypoly.config import ScorerConfig
from raypoly.scoring.local_pool import LocalPool
from raypoly.scoring.program_queue import BROKEN
from raypoly.scoring.score_programs import DEFAULT, by_id
from raypoly.values import Problem, Verdict

NO_SOLUTION = "no solution to check it by"
FAILED = "the sandbox failed"


@dataclass(frozen=True)
class Validation:
    """What a problem's own solution says of it."""

    problem: Problem
    """With `reference_seconds`, where that was asked for and its solution passes."""
    status: str
    """The status of the solution's verdict, `broken` where the tests can't be run, `unchecked` without solution."""
    reason: str
    """Why it should not be used; empty where its solution passes."""
    detail: str

    @property
    def excluded(self) -> bool:
        """Whether it is known to be unusable."""
        return self.reason not in ("", NO_SOLUTION, FAILED)

    @property
    def row(self) -> dict[str, Any]:
        """Its row in an exclusion list."""
        return {
            "problem_id": self.problem.id,
            "reason": self.reason,
            "status": self.status,
            "detail": self.detail,
        }


def validate(problems: Iterable[Problem], config: ScorerConfig = DEFAULT, calibrate: bool = False) -> list[Validation]:
    """Run each problem's own solution; with `calibrate` twice, which also measures its `reference_seconds`.

    Raises `UsageError` where two problems have the same id, `IsolationMissing` where programs can't be confined.
    """
    known = by_id(problems)
    with LocalPool(config, calibrate=calibrate) as pool:
        return list(validated(pool, known.values(), calibrate))


def validated(pool: LocalPool, problems: Iterable[Problem], calibrate: bool) -> Iterator[Validation]:
    """The same as a stream, in order. `calibrate` as the pool's."""
    asked: deque[Problem] = deque()

    def pairs() -> Iterator[tuple[Problem, str | None]]:
        for problem in problems:
            asked.append(problem)
            yield problem, problem.solution or None

    for verdict in pool.score(pairs()):
        problem = asked.popleft()
        found = _judged(problem, verdict)
        if calibrate and not found.reason:
            seconds = pool.reference_seconds(problem)
            if seconds is None:
                found = replace(found, status="unsteady", reason="its solution does not pass every time")
            found = replace(found, problem=replace(problem, reference_seconds=seconds))
        yield found


def _judged(problem: Problem, verdict: Verdict) -> Validation:
    if not problem.solution:
        return Validation(problem, "unchecked", NO_SOLUTION, "")
    if verdict.passed:
        return Validation(problem, verdict.status, "", "")
    if verdict.status != "infra":
        return Validation(problem, verdict.status, "its solution does not pass", verdict.detail)
    if verdict.detail.startswith(BROKEN):
        return Validation(problem, "broken", "its tests can't be run", verdict.detail.removeprefix(BROKEN))
    return Validation(problem, "infra", FAILED, verdict.detail)
