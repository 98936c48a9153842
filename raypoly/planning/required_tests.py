"""Whether the reward and the objective can use problems whose answers are no programs.

require_tests(problem_set, config)      # refuses a reward or an objective that would take "not run" for "wrong"
"""

from __future__ import annotations

from collections.abc import Collection

from raypoly.algorithms import objectives
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.data.problem_set import ProblemSet
from raypoly.strategies.judge import reads_texts


def require_tests(problem_set: ProblemSet, config: Config) -> None:
    """Raise `UsageError` where problems to train on have no tests, or an answer in place of them, and the reward or the
    objective needs what only programs have."""
    train = problem_set.splits["train"]
    if untested := [problem.id for problem in train if problem.tests.kind == "none"]:
        what = f"{len(untested)} of {len(train)} training problems have no tests to run ({untested[0]})"
        if config.reward.name in ("passed", "fraction") and objectives.of_run(config).reads_rewards:
            raise UsageError(
                f"{what}, so reward.name={config.reward.name} can't judge their answers: set reward.name=compute_score "
                "and reward.compute_score=package.module:function, or leave them out by problems.exclude."
            )
        _require_no_program(what, ("outcomes", "statements"), config)
    if asked := [problem.id for problem in train if problem.tests.kind == "answer"]:
        what = f"{len(asked)} of {len(train)} training problems are answered by a value, not a program ({asked[0]})"
        _require_no_program(what, ("statements",), config)  # its outcome is what was answered


def _require_no_program(what: str, of_programs: Collection[str], config: Config) -> None:
    """Raise `UsageError`, which begins with `what`, if the objective needs something `of_programs`, or labels by a
    judge that reads programs alone."""
    needs = objectives.of_run(config).needs
    missing = [need for need in sorted(needs) if need in of_programs]
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
