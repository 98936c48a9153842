"""Plain tasks: small Python functions described in words, over lists, strings, numbers and dictionaries.

    load_tasks(ProblemsConfig(source="tasks")).splits["train"][0].prompt

`kinds.yaml` holds the kinds, with their wordings, programs and inputs. A problem is a kind alone, or one kind applied
to what another returns. docs/tasks.md has counts, the split by idea, and what the tasks don't show.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Problem, Split
from raypoly.data.formats.row_fields import call_suite, prompt_of
from raypoly.data.problem_set import ProblemSet, content_hash
from raypoly.data.similar import find_duplicates
from raypoly.data.tasks.task_kinds import Task, all_tasks, read_task_file

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


_PLACE = re.compile(r"<(\w+)>")
_DRAWS = 10


def word_task(task: Task, rng: random.Random) -> str:
    """The statement of a task, in one of its wordings and frames and with one of its parameters' names: what is asked
    for, what comes in, what edge cases give, and in every second statement one call of it."""
    file = read_task_file()
    names = rng.choice(task.takes.parameters)
    frame = rng.choice(file.frames).replace("CALL", f"{task.name}({', '.join(names)})")
    outer = task.kinds[0]
    sentences = [
        frame.replace("WHAT", _phrase(task, rng)).replace(",.", "."),
        rng.choice(task.takes.says),
        *dict.fromkeys(kind.always for kind in reversed(task.kinds)),
        outer.result,
        file.endings.get(outer.gives, ""),
        _example(task, rng) if rng.random() < 0.5 else "",
    ]
    renamed = dict(zip(task.takes.parameters[0], names, strict=True))
    return _PLACE.sub(lambda place: renamed[place[1]], " ".join(filter(None, sentences)))


def _phrase(task: Task, rng: random.Random) -> str:
    """What the function returns."""
    noun, within = task.takes.noun, task.takes.within
    for kind in reversed(task.kinds):
        wordings = kind.wordings if kind is task.kinds[0] or not kind.short else kind.short
        noun = rng.choice(wordings).replace("<in>", within).replace("<>", noun)
        within = f"among {noun}"
    return noun


def _example(task: Task, rng: random.Random) -> str:
    """One call with its result; one that gives something, if it can be had by a few draws."""
    for number in range(_DRAWS):
        args = task.takes.draw(rng, number)
        result = task.result(args)
        if result:
            break
    return f"For example, `{task.name}({', '.join(map(repr, args))})` returns `{result!r}`."


_SHARE = 4  # an idea has at most one part in so many of a split, where other ideas can fill it


def split_by_idea(tasks: Sequence[Task], config: ProblemsConfig) -> dict[Split, Sequence[Task]]:
    """The tasks by split, each shuffled: what is tested is made of something that was never trained on.

    Every task of the test has an idea that no other split has: a composition goes with the idea that is held out first.
    The ideas are gone through in an order drawn by `problems.seed`, the families in turn. The test takes an idea, with
    all tasks that have it, where they fit into what is left of `problems.test`, and are at most a quarter of it: so no
    test is about one idea. Then the validation takes ideas in the same way from what is left, and the rest is trained
    on. Raises `UsageError` where the ideas can't be dealt out so, or nothing is left to train on.
    """
    rng = random.Random(derive(config.seed, "task split"))
    ideas = _families_in_turn(tasks, rng)
    rest = list(tasks)
    splits: dict[Split, Sequence[Task]] = {}
    wanted: list[tuple[Split, int]] = [("test", config.test), ("validation", config.validation)]
    for name, count in wanted:
        held_out = _held_out(rest, ideas, count)
        splits[name] = [task for task in rest if task.ideas & held_out]
        if len(splits[name]) < count or len(splits[name]) == len(rest):
            raise UsageError(
                f"problems.{name}={count} can't be set apart from the {len(rest)} tasks that are there for it, by kind"
                " and with some left to train on: lower problems.test or problems.validation."
            )
        rest = [task for task in rest if not task.ideas & held_out]
    splits["train"] = rest
    return {name: rng.sample(members, len(members)) for name, members in splits.items()}


def _families_in_turn(tasks: Sequence[Task], rng: random.Random) -> list[str]:
    """All ideas in a drawn order: one of lists, one of strings and so on in turn, as long as a family has some."""
    family: dict[str, str] = {}
    for kind in (kind for task in tasks for kind in task.kinds):
        family.setdefault(kind.idea, kind.family)
    ideas = sorted(family)
    rng.shuffle(ideas)
    queues = [[idea for idea in ideas if family[idea] == name] for name in sorted(set(family.values()))]
    return [idea for turn in itertools.zip_longest(*queues) for idea in turn if idea is not None]


def _held_out(tasks: Sequence[Task], ideas: Sequence[str], count: int) -> set[str]:
    """Ideas that `count` of the tasks have, or fewer where they can't be had."""
    having: dict[str, set[str]] = defaultdict(set)
    for task in tasks:
        for idea in task.ideas:
            having[idea].add(task.name)
    chosen: set[str] = set()
    taken: set[str] = set()
    for most in (max(1, count // _SHARE), count):
        for idea in ideas:
            new = having[idea] - taken
            if new and len(having[idea]) <= most and len(taken) + len(new) <= count:
                chosen.add(idea)
                taken |= new
    return chosen
