"""Problems without tests, which only a user's own reward function can judge."""

from __future__ import annotations

from collections.abc import Sequence

from raypoly.core.values import Problem
from raypoly.data.problem_set import ProblemSet


def with_tests(problems: Sequence[Problem]) -> list[Problem]:
    """The problems whose answers can be judged."""
    return [problem for problem in problems if problem.tests.kind != "none"]


def count_with_tests(problem_set: ProblemSet) -> dict[str, int]:
    """By split, the problems that an evaluation could measure."""
    return {name: len(with_tests(split)) for name, split in problem_set.splits.items()}
