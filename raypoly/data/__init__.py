"""Problem sources.

    build_problem_set(config.problems).splits["train"]

A source is `function(config) -> ProblemSet`, found by name: one file here and one line in `KNOWN`, or
`package.module:function`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.plugins import load_plugin
from raypoly.core.values import Problem
from raypoly.data.problem_set import ProblemSet, content_hash
from raypoly.data.templates import ChatTemplate, prompt_maker

__all__ = ["KNOWN", "ProblemSet", "build_problem_set"]

KNOWN: Mapping[str, str] = {
    "puzzles": "raypoly.data.puzzles:load_puzzles",
    "tasks": "raypoly.data.tasks:load_tasks",
    "jsonl": "raypoly.data.jsonl:load_jsonl",
    "hub": "raypoly.data.hub:load_hub",
    "prepared": "raypoly.data.prepared:load_prepared",
    "verl": "raypoly.data.verl_rows:load_verl",
}


def build_problem_set(config: ProblemsConfig) -> ProblemSet:
    """The problems of `config.source`, compared by `config.comparison`, with prompts by `config.template`.

    Raises `UsageError` where the template can't be used, or a problem's answer is no program of its own.
    """
    problems: ProblemSet = load_plugin(config.source, KNOWN, "problems.source")(config)
    if config.comparison != "format":
        problems = _changed(problems, lambda problem: problem.compared_by(config.comparison))
    if config.template == "none":
        return problems
    if config.source == "verl":
        raise UsageError("problems.template goes with rows of problems; those of verl's bring their messages: drop it.")
    return _changed(problems, prompt_maker(config.template, ChatTemplate.of(config)))


def _changed(problems: ProblemSet, change: Callable[[Problem], Problem]) -> ProblemSet:
    splits = {name: [change(problem) for problem in members] for name, members in problems.splits.items()}
    return ProblemSet(splits, content_hash(splits))
