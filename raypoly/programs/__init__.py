"""Programs: how a problem's attempts are asked for, in training and in evaluation (docs/programs.md).

    program = of_run(config)
    program.ask(problem, drafts=(), attempts=8)

To add one, write a file like `direct.py` and name it in KNOWN, or keep it outside the tree and set
`program.name=package.module:Class`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from raypoly import objectives
from raypoly.config import Config
from raypoly.errors import UsageError
from raypoly.plugins import load_configured_plugin
from raypoly.problems import ProblemSet
from raypoly.problems.problem_set import check_apart
from raypoly.problems.public_tests import set_apart
from raypoly.programs.program import Ask, Program, ProgramConfig

KNOWN: Mapping[str, str] = {
    "direct": "raypoly.programs.direct:Direct",
    "chain_of_thought": "raypoly.programs.chain_of_thought:ChainOfThought",
    "plan_and_solve": "raypoly.programs.plan_and_solve:PlanAndSolve",
    "fixed_strategy": "raypoly.programs.fixed_strategy:FixedStrategy",
    "skills": "raypoly.programs.skills:Skills",
    "sketch_then_solve": "raypoly.programs.sketch_then_solve:SketchThenSolve",
    "tuple": "raypoly.programs.tuple_plans:TuplePlans",
    "plan_search": "raypoly.programs.plan_search:PlanSearch",
    "repair": "raypoly.programs.repair:Repair",
    "given": "raypoly.programs.given:Given",
}

__all__ = [
    "KNOWN",
    "Ask",
    "Program",
    "ProgramConfig",
    "build",
    "fit_problems",
    "is_sampled",
    "name_of_run",
    "of_evaluation",
    "of_run",
]


def build(name: str, chat_template: str | None = None, **params: Any) -> Program:
    """The program of this name with these parameters. `UsageError` names an unknown or wrong parameter."""
    built: Program = load_configured_plugin(name, KNOWN, "program", params)
    built.chat_template = chat_template
    return built


def name_of_run(config: Config) -> str:
    """`program.name`, or else the program of the objective, or else `direct`.

    Raises `UsageError` where the objective needs another program than the config names.
    """
    wanted = objectives.of_run(config).program
    given = config.program.name
    if wanted is not None and given not in (None, wanted):
        raise UsageError(
            f"objective.name={config.objective.name} trains with program.name={wanted}, not with program.name={given}: "
            "leave program.name out."
        )
    return given or wanted or "direct"


def of_run(config: Config) -> Program:
    """The program that a run's config trains with. Raises `UsageError` as `build` and `name_of_run` do."""
    name, objective = name_of_run(config), objectives.of_run(config)
    params = dict(config.program.model_extra or {})
    if name == objective.program:
        params |= objective.program_parameters()
    return build(name, config.problems.chat_template, **params)


def fit_problems(problem_set: ProblemSet, config: Config) -> ProblemSet:
    """The problems of `problems.source` as the run's programs need them: with the program's own ones to train on, if it
    brings some, and with public tests set apart from those that decide, if a program shows any. Then all that the run
    measures is measured on the others.

    Raises `UsageError` where a problem would be in two splits.
    """
    program = of_run(config)
    if (own := program.own_problems()) is not None:
        splits = {**problem_set.splits, "train": own}
        check_apart(splits, "give it another name in program.rows, if it is another problem")
        said = json.dumps([problem_set.hash, program.content])
        problem_set = ProblemSet(splits, hashlib.sha256(said.encode()).hexdigest())
    shown = max(each.shown_tests for each in (program, of_evaluation(config)))
    if not shown:
        return problem_set
    apart = {name: [set_apart(it, shown) for it in split] for name, split in problem_set.splits.items()}
    return ProblemSet(apart, problem_set.hash)


def of_evaluation(config: Config) -> Program:
    """The program that a run's evaluations use: its own, but `direct` where the objective brought it, or where it
    samples nothing."""
    if config.program.name is not None and (program := of_run(config)).samples:
        return program
    return build("direct", config.problems.chat_template)


def is_sampled(config: Config) -> bool:
    """Whether a run samples anything, in training or to be measured. If not, it needs no engine."""
    return config.evaluate.every > 0 or of_run(config).samples
