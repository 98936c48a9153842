"""The two ways in which TRL's reward runs programs.

    with GRADERS["sandboxes"](workers=2) as passed:
        rewards = [float(each) for each in passed([(problem, "def f(n): ...")])]

Both say the same of each program. As a command it reads lines of {"problem": a row of raypoly's, "code": text or null}
and prints whether each passes, as a JSON list:

    python -m benchmarks.steps.graders forks < programs.jsonl
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager

from benchmarks.scorers import manager
from benchmarks.scorers.programs import as_check, whole
from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem
from raypoly.data.formats import problem_of
from raypoly.verifier.local_pool import LocalPool

Program = tuple[Problem, str | None]
"""A program and what it is for; None is no program."""
Grader = Callable[[Sequence[Program]], list[bool]]


@contextmanager
def sandboxes(workers: int) -> Iterator[Grader]:
    """raypoly's own, without Ray."""
    with LocalPool(ScorerConfig(workers=workers)) as pool:
        yield lambda programs: [verdict.passed for verdict in pool.score(programs)]


@contextmanager
def forks(workers: int) -> Iterator[Grader]:
    """A Manager and a forked process for each program, as public trainers' graders have it. No isolation.

    The workers are not forked from the trainer, whose pages would make each of their forks dearer.
    """
    checks: dict[str, Problem] = {}
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("forkserver")) as pool:

        def passed(programs: Sequence[Program]) -> list[bool]:
            checks.update((problem.id, as_check(problem)) for problem, _ in programs if problem.id not in checks)
            asked = [None if code is None else whole(checks[problem.id], code) for problem, code in programs]
            found = iter(list(pool.map(manager.score, [text for text in asked if text is not None])))
            return [text is not None and next(found).passed for text in asked]

        yield passed


GRADERS: dict[str, Callable[[int], AbstractContextManager[Grader]]] = {"sandboxes": sandboxes, "forks": forks}


def main() -> None:
    rows = [json.loads(line) for line in sys.stdin]
    with GRADERS[sys.argv[1]](2) as passed:
        print(json.dumps(passed([(problem_of(row["problem"]), row["code"]) for row in rows])))


if __name__ == "__main__":
    main()
