"""Programs and problems in, verdicts out: the library's side of `raypoly score`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from raypoly.config import ScorerConfig
from raypoly.errors import UsageError
from raypoly.problems.formats import program_of
from raypoly.scoring.local_pool import LocalPool
from raypoly.values import Problem, Verdict

DEFAULT = ScorerConfig()


@dataclass(frozen=True)
class Program:
    """One program to score."""

    id: str | int
    """Whatever the caller knows it by; it need not be unique."""
    problem_id: str
    code: str | None
    """None where the model wrote none."""


def score(
    problems: Iterable[Problem],
    programs: Iterable[Program],
    config: ScorerConfig = DEFAULT,
    evidence: bool = False,
    on_verdict: Callable[[Program, Verdict], None] | None = None,
) -> list[Verdict]:
    """A verdict a program, in order; `on_verdict` hears each as soon as it and those before it are there.

    Raises `UsageError` where a program names a problem that is not there, `IsolationMissing` where programs can't be
    confined.
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
    pool: LocalPool, problems: Mapping[str, Problem], programs: Iterable[Program]
) -> Iterator[tuple[Program, Verdict]]:
    """Each program with its verdict, in order, as a stream. `problems` by id. Raises as `score` does."""
    asked: deque[Program] = deque()

    def pairs() -> Iterator[tuple[Problem, str | None]]:
        for program in programs:
            problem = problems.get(program.problem_id)
            if problem is None:
                raise UsageError(f"Program {program.id!r} is for problem {program.problem_id!r}, which is not there.")
            asked.append(program)
            yield problem, None if program.code is None else program_of(problem, program.code)

    for verdict in pool.score(pairs()):
        yield asked.popleft(), verdict


def by_id(problems: Iterable[Problem]) -> dict[str, Problem]:
    """Problems by id. Raises `UsageError` where two have the same."""
    known: dict[str, Problem] = {}
    for problem in problems:
        if known.setdefault(problem.id, problem) is not problem:
            raise UsageError(f"Two problems have the id {problem.id!r}: give each its own.")
    return known
