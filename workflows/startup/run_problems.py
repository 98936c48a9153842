"""The problems of a run, checked before its folder holds anything, and fitted to its tokenizer once that is there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from actors.generator import Generator
from raypoly import data
from raypoly.core.config import Config
from raypoly.data import ProblemSet
from raypoly.data.long_prompts import fit_training_prompts
from raypoly.data.problem_order import require_enough
from raypoly.data.readable_prompts import require_readable
from raypoly.planning.preflight import require_tests
from raypoly.rollouts.scaffolds import Scaffold
from raypoly.rollouts.scaffolds.planned_prompts import first_prompts
from raypoly.rollouts.scaffolds.run_scaffolds import check_first_asks, fit_problems
from raypoly.run.run_identity import RunDirectory
from workflows.step.scaffold_rounds import check_given


def usable_problems(directory: RunDirectory, trains: Config | None) -> tuple[ProblemSet, ProblemSet]:
    """The problems of `problems.source`, and those of the run. `trains`: as `open_run`. Raises `UsageError`."""
    config = directory.config
    source = data.build_problem_set(config.problems)
    problem_set = fit_problems(source, config)
    check_first_asks(problem_set, config)
    require_tests(problem_set, config)
    if trains is not None:
        require_enough(problem_set.splits["train"], trains)
    require_readable(source, problem_set, config, directory.resumes)
    return source, problem_set


async def fitting_problems(
    problem_set: ProblemSet, config: Config, scaffold: Scaffold, generator: Generator, note: Callable[[str], None]
) -> ProblemSet:
    """The problems whose prompts and given responses have no more tokens than the config allows. Raises `UsageError`
    for others, unless `problems.over_long` says what becomes of them."""
    asked = partial(first_prompts, scaffold, attempts=config.train.rollouts)
    problem_set = await fit_training_prompts(problem_set, config, generator.encode, note, asked)
    await check_given(generator, config, problem_set.splits["train"], scaffold)
    return problem_set
