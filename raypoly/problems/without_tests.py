"""Problems without tests, whose answers only a user's own reward function can judge.

require_tests(problem_set, config)      # refuses a reward or an objective that would take "not run" for "wrong"
"""

from __future__ import annotations

from collections.abc import Sequence

from raypoly import objectives
from raypoly.config import Config
from raypoly.errors import UsageError
from raypoly.judge import reads_texts
from raypoly.problems.problem_set import ProblemSet
from raypoly.values import Problem

PROGRAMS = {"outcomes": "outcomes", "statements": "statements"}
"""Needs of an objective that only programs meet, and their names in messages."""


def with_tests(problems: Sequence[Problem]) -> list[Problem]:
    """The problems whose answers can be run."""
    return [problem for problem in problems if problem.tests.kind != "none"]


def require_tests(problem_set: ProblemSet, config: Config) -> None:
    """Raise `UsageError` where problems to train on have no tests, and the reward or the objective needs them."""
    train = problem_set.splits["train"]
    without = next((problem.id for problem in train if problem.tests.kind == "none"), None)
    if without is None:
        return
    what = f"{len(train) - len(with_tests(train))} of {len(train)} training problems have no tests to run ({without})"
    if config.reward.name in ("passed", "fraction"):
        raise UsageError(
            f"{what}, so reward.name={config.reward.name} can't judge their answers: set reward.name=compute_score and "
            "reward.compute_score=package.module:function, or leave them out by problems.exclude."
        )
    needs = objectives.of_run(config).needs
    missing = [PROGRAMS[need] for need in sorted(needs) if need in PROGRAMS]
    if "labels" in needs and not reads_texts(config.judge):
        raise UsageError(
            f"{what}, and judge.name={config.judge.name} finds strategies in programs alone, which objective.name="
            f"{config.objective.name} needs: set judge.name=openai, which reads texts too, or objective.name=grpo."
        )
    if missing:
        raise UsageError(
            f"{what}, and objective.name={config.objective.name} needs {missing[0]}, which are those of programs: "
            "set objective.name=grpo, or leave them out by problems.exclude."
        )
