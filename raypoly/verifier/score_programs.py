"""Verdicts of programs and problems: the library behind `raypoly score`.

verdicts = score(problems, [GivenProgram("a-1", "two-sum", "class Solution: ...")])
for found in validate(problems):                        # each problem's own solution, against its own tests
    print(found.problem.id, found.reason or "usable")
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, Verdict
from raypoly.data.formats import program_of
from raypoly.verifier.local_pool import BROKEN, LocalPool
from raypoly.verifier.sandbox import EvidenceReader

T = TypeVar("T")
_DEFAULT = ScorerConfig()
NO_SOLUTION = "no solution to check it by"
FAILED = "the sandbox failed"


@dataclass(frozen=True)
class GivenProgram:
    id: str | int
    """The caller's; it need not be unique."""
    problem_id: str
    code: str | None
    """None if the response has no program."""


@dataclass(frozen=True)
class Validation:
    """Result of a problem's own solution."""

    problem: Problem
    """With `reference_seconds` if requested and the solution passes."""
    status: str
    """Of the solution's verdict; `broken` if the tests can't be run, `unchecked` without a solution."""
    reason: str
    """Why not to use it; empty if its solution passes."""
    detail: str

    @property
    def excluded(self) -> bool:
        """Whether the problem is known to be unusable."""
        return self.reason not in ("", NO_SOLUTION, FAILED)

    @property
    def row(self) -> dict[str, Any]:
        """Its row in an exclusion list."""
        return {"problem_id": self.problem.id, "reason": self.reason, "status": self.status, "detail": self.detail}


def score(
    problems: Iterable[Problem],
    programs: Iterable[GivenProgram],
    config: ScorerConfig = _DEFAULT,
    evidence: EvidenceReader | None = None,
    on_verdict: Callable[[GivenProgram, Verdict], None] | None = None,
) -> list[Verdict]:
    """A verdict for each program, in order. `on_verdict` is called with each, in order, as soon as it is known.

    Raises `UsageError` if a program names an unknown problem, `IsolationMissing` if programs can't be confined.
    """
    verdicts = []
    known = by_id(problems)
    with LocalPool(config, evidence) as pool:
        for program, verdict in scored(pool, known, programs):
            verdicts.append(verdict)
            if on_verdict is not None:
                on_verdict(program, verdict)
    return verdicts


def scored(
    pool: LocalPool, problems: Mapping[str, Problem], programs: Iterable[GivenProgram]
) -> Iterator[tuple[GivenProgram, Verdict]]:
    """Each program with its verdict, in order, as a stream. `problems` by id. Raises as `score` does."""

    def prepare(program: GivenProgram) -> list[tuple[Problem, str | None]]:
        problem = problems.get(program.problem_id)
        if problem is None:
            raise UsageError(f"Program {program.id!r} is for problem {program.problem_id!r}, which is not there.")
        return [(problem, None if program.code is None else program_of(problem, program.code))]

    for program, (verdict,) in score_each(pool, programs, prepare):
        yield program, verdict


def validate(problems: Iterable[Problem], config: ScorerConfig = _DEFAULT, calibrate: bool = False) -> list[Validation]:
    """Run each problem's own solution; with `calibrate` twice, which also measures its `reference_seconds`.

    Raises `UsageError` if two problems have the same id, `IsolationMissing` if programs can't be confined.
    """
    known = by_id(problems)
    with LocalPool(config, calibrate=calibrate) as pool:
        return list(validated(pool, known.values(), calibrate))


def validated(pool: LocalPool, problems: Iterable[Problem], calibrate: bool) -> Iterator[Validation]:
    """`validate` as a stream, in order. `calibrate` is the pool's."""
    for problem, (verdict,) in score_each(pool, problems, lambda problem: [(problem, problem.solution or None)]):
        found = _validation_of(problem, verdict)
        if calibrate and not found.reason:
            seconds = pool.reference_seconds(problem)
            if seconds is None:
                found = replace(found, status="unsteady", reason="its solution does not pass every time")
            found = replace(found, problem=replace(problem, reference_seconds=seconds))
        yield found


def score_each(
    pool: LocalPool, items: Iterable[T], programs: Callable[[T], Sequence[tuple[Problem, str | None]]]
) -> Iterator[tuple[T, tuple[Verdict, ...]]]:
    """Each item with the verdicts of its `programs` (perhaps none), in order. Items are read on demand."""
    waiting: deque[tuple[T, int]] = deque()

    def draw() -> Iterator[tuple[Problem, str | None]]:
        for item in items:
            pairs = programs(item)
            waiting.append((item, len(pairs)))
            yield from pairs

    verdicts: list[Verdict] = []
    for verdict in pool.score(draw()):
        while not waiting[0][1]:
            yield waiting.popleft()[0], ()
        verdicts.append(verdict)
        if len(verdicts) == waiting[0][1]:
            yield waiting.popleft()[0], tuple(verdicts)
            verdicts = []
    for item, _ in waiting:
        yield item, ()


def limit_workers(config: ScorerConfig, programs: int) -> ScorerConfig:
    """The config with no more workers than there are programs."""
    return config.model_copy(update={"workers": max(1, min(config.workers, programs))})


def by_id(problems: Iterable[Problem]) -> dict[str, Problem]:
    """Raises `UsageError` if two problems have the same id."""
    known: dict[str, Problem] = {}
    for problem in problems:
        if known.setdefault(problem.id, problem) is not problem:
            raise UsageError(f"Two problems have the id {problem.id!r}: give each its own.")
    return known


def _validation_of(problem: Problem, verdict: Verdict) -> Validation:
    if not problem.solution:
        return Validation(problem, "unchecked", NO_SOLUTION, "")
    if verdict.passed:
        return Validation(problem, verdict.status, "", "")
    if verdict.status != "infra":
        return Validation(problem, verdict.status, "its solution does not pass", verdict.detail)
    if verdict.detail.startswith(BROKEN):
        return Validation(problem, "broken", "its tests can't be run", verdict.detail.removeprefix(BROKEN))
    return Validation(problem, "infra", FAILED, verdict.detail)
