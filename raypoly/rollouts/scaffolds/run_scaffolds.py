"""The scaffolds of a run: the one that trains, those that evaluations ask, the problems as all of them need them, and
the planned numbers of a group, before anything is sampled.

problem_set = fit_problems(problem_set, config)
of_evaluations(config)["tuple"]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from raypoly.algorithms.objectives import Objective
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.plugins import load_plugin, recipe_parts
from raypoly.core.settings import parse_value
from raypoly.core.values import Problem, Split, TestSuite
from raypoly.data import ProblemSet
from raypoly.data.problem_set import check_apart
from raypoly.data.public_tests import set_apart
from raypoly.data.templates import ChatTemplate
from raypoly.rollouts import environments
from raypoly.rollouts.scaffolds import KNOWN, Scaffold, build, name_of_run, of_run
from raypoly.rollouts.scaffolds.scaffold import checked_asks, is_final

_PROBLEM = Problem("forecast", "prompt", "f", TestSuite("none", ""))


def fit_problems(problem_set: ProblemSet, config: Config) -> ProblemSet:
    """Problems of `problems.source` as the run's scaffolds need them: with the scaffold's own to train on, without
    tests if it samples nothing, and `with_public_tests`. Raises `UsageError` for a problem in two splits."""
    scaffold = of_run(config)
    if (own := scaffold.own_problems()) is not None:
        splits = {**problem_set.splits, "train": own}
        check_apart(splits, "give it another name in scaffold.rows, if it is another problem")
        said = json.dumps([problem_set.hash, scaffold.content])
        problem_set = ProblemSet(splits, hashlib.sha256(said.encode()).hexdigest(), problem_set.hash)
    if not scaffold.samples:
        train = [replace(it, tests=TestSuite("none", "")) for it in problem_set.splits["train"]]
        problem_set = replace(problem_set, splits={**problem_set.splits, "train": train})
    return with_public_tests(problem_set, config)


def with_public_tests(problem_set: ProblemSet, config: Config) -> ProblemSet:
    """Problems with public tests set apart from those that decide, if the run's environment shows any."""
    shown = environments.of_run(config).shown_tests
    if not shown:
        return problem_set
    apart = {name: [set_apart(it, shown) for it in split] for name, split in problem_set.splits.items()}
    return replace(problem_set, splits=apart)


def check_first_asks(problem_set: ProblemSet, config: Config) -> None:
    """Ask each of the run's scaffolds for the first problem of each split. Raises `UsageError` as `checked_asks`."""
    evaluate = config.evaluate
    asked = [(of_run(config), "train", config.train.rollouts)]
    for split, samples in (("test", evaluate.samples), ("validation", evaluate.validation_samples)):
        asked += [(scaffold, split, samples) for scaffold in of_evaluations(config).values() if evaluate.every]
    for scaffold, split, attempts in asked:
        for problem in problem_set.splits[cast(Split, split)][:1]:
            checked_asks(scaffold, problem, (), attempts)


def of_evaluations(config: Config) -> dict[str, Scaffold]:
    """Scaffolds that evaluations ask, by name: those of `evaluate.scaffolds`; or else the run's own, but `direct` where
    the objective brought it, or where it samples nothing. Of two with one name the second's has its parameters too."""
    own, found = config.scaffold.name, dict[str, Scaffold]()
    for asked in config.evaluate.scaffolds or [own if own is not None and of_run(config).samples else "direct"]:
        name, params = (asked, {}) if isinstance(asked, str) else (asked.name, asked.parameters)
        also = "".join(f" {key}={value}" for key, value in params.items() if name in found)
        if f"{name}{also}" in found:
            raise UsageError(f"evaluate.scaffolds names {name}{also} twice: give one of them other parameters.")
        found[f"{name}{also}"] = _named(config, name, params)
    return found


def named_scaffolds(config: Config, names: Sequence[str], overrides: Sequence[str]) -> dict[str, Scaffold] | None:
    """Scaffolds of a command, by name; None where it names none. An override is for those that have its key. Raises
    `UsageError` for an unknown name, and for a key that none of them has."""
    given = {key.removeprefix("scaffold."): value for key, _, value in (each.partition("=") for each in overrides)}
    kinds = {name: load_plugin(name, {**KNOWN, **recipe_parts("scaffold.name")}, "--scaffold") for name in names}
    for key in given:
        if not any(key in kind.Config.model_fields for kind in kinds.values()):
            raise UsageError(f"scaffold.{key}={given[key]} is no parameter of {', '.join(names)}.")
    found = {}
    for name, kind in kinds.items():
        fields = kind.Config.model_fields
        params = {
            key: parse_value(f"scaffold.{key}", text, fields[key]) for key, text in given.items() if key in fields
        }
        found[name] = build(name, ChatTemplate.of(config.problems), **params)
    return found or None


def _named(config: Config, name: str, params: Mapping[str, Any]) -> Scaffold:
    """The run's own with its parameters, or another with its defaults, both but for `params`."""
    if name == name_of_run(config):
        return of_run(config, **params).measured
    return build(name, ChatTemplate.of(config.problems), **params).measured


def is_sampled(config: Config) -> bool:
    """Whether a run samples anything, in training or to be measured, and needs an engine."""
    return config.evaluate.every > 0 or of_run(config).samples


def first_prompts(scaffold: Scaffold, problem: Problem, attempts: int) -> tuple[str, ...]:
    """The distinct prompts of the scaffold's first asks, in the order of use. Raises `UsageError` as `checked_asks`."""
    return tuple(dict.fromkeys(ask.prompt for ask in checked_asks(scaffold, problem, (), attempts)))


def distinct_prompts(scaffold: Scaffold, attempts: int) -> int:
    """P, the distinct prompts of a group's attempts. Those made from drafts are taken to differ, and so are those of a
    scaffold that needs a real problem."""
    try:
        asks = checked_asks(scaffold, _PROBLEM, (), attempts)
    except UsageError:
        return attempts
    return len({ask.prompt for ask in asks}) if is_final(asks) else attempts


def planned_rows(objective: Objective, scaffold: Scaffold, attempts: int) -> int:
    """N where drafts are not trained, N + D where they are, D without attempts; at least 1. They divide a step's loss
    beside the planned problems; being planned, they are the same whatever was sampled."""
    drafts = scaffold.planned_drafts(attempts) if objective.trains_drafts else 0
    return max(1, scaffold.planned_attempts(attempts) + drafts)
