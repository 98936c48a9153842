"""Plain tasks: small Python functions described in words, over lists, strings, numbers and dictionaries.

    load_tasks(ProblemsConfig(source="tasks")).splits["train"][0].prompt

`kinds.yaml` holds the kinds, with their wordings, programs and inputs. A problem is a kind alone, or one kind applied
to what another returns. docs/tasks.md has counts, the split by idea, and what the tasks don't show.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Problem
from raypoly.data.formats.row_fields import call_suite, prompt_of
from raypoly.data.problem_set import ProblemSet, content_hash
from raypoly.data.similar import find_duplicates
from raypoly.data.tasks.task_kinds import Task, all_tasks
from raypoly.data.tasks.task_split import split_by_idea
from raypoly.data.tasks.task_wording import word_task

_FEWEST_TESTS = 18
_DRAWN_TESTS = 10  # the fewest tests, and the fewest drawn ones among them
_ATTEMPTS = 8  # wordings that are tried of one task


def load_tasks(config: ProblemsConfig) -> ProblemSet:
    """All tasks, or those of one kind, worded and split by `config.seed`; the tests are the same for every seed.

    Raises `UsageError` where the kinds leave no such split.
    """
    parts = split_by_idea([task for task in all_tasks() if config.compositions or len(task.kinds) == 1], config)
    worded = _worded(config.seed)
    splits = {name: [worded[_id(task)] for task in members] for name, members in parts.items()}
    return ProblemSet(splits, content_hash(splits))


def _worded(seed: int) -> Mapping[str, Problem]:
    # Of two statements that are too near, one gets other words.
    tasks, problems = _by_id(), dict(_without_prompts())
    pending = set(problems)
    for attempt in range(_ATTEMPTS):
        for name in sorted(pending):
            rng = random.Random(derive(seed, "task wording", name, attempt))
            problems[name] = replace(problems[name], prompt=prompt_of(word_task(tasks[name], rng)))
        pending = {pair.dropped.id for pair in find_duplicates(problems.values())}
        if not pending:
            break
    return problems


def programs_of(problem: Problem) -> Mapping[str, str]:
    """The known right programs of a task by strategy. Raises `UsageError` where the problem was not made here."""
    task = _by_id().get(problem.id) if problem.source == "tasks" else None
    if task is None:
        raise UsageError(f"problem {problem.id!r} is none of problems.source=tasks.")
    return task.programs


@cache
def _by_id() -> Mapping[str, Task]:
    return {_id(task): task for task in all_tasks()}


@cache
def _without_prompts() -> Mapping[str, Problem]:
    return {
        name: Problem(
            id=name,
            prompt="",
            entry_point=task.name,
            tests=call_suite(task.tests(_FEWEST_TESTS, _DRAWN_TESTS)),
            solution=next(iter(task.programs.values())),
            source="tasks",
            metadata={
                "kinds": ", ".join(kind.name for kind in task.kinds),
                "ideas": ", ".join(sorted(task.ideas)),
                "family": task.takes.family,
                "strategies": ", ".join(task.programs),
            },
        )
        for name, task in _by_id().items()
    }


def _id(task: Task) -> str:
    return f"task-{task.name.replace('_', '-')}"
