"""Splits of tasks by idea: what is tested is made of something that was never trained on.

    split_by_idea(all_tasks(), ProblemsConfig(test=64, validation=64))["test"]

Every task of the test has an idea that no other split has: a composition goes with the idea that is held out first.
The ideas are gone through in an order drawn by `problems.seed`, the families in turn. The test takes an idea, with all
tasks that have it, where they fit into what is left of `problems.test`, and are at most a quarter of it: so no test is
about one idea. Then the validation takes ideas in the same way from what is left, and the rest is trained on.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Sequence

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Split
from raypoly.data.tasks.task_kinds import Task

_SHARE = 4  # an idea has at most one part in so many of a split, where other ideas can fill it


def split_by_idea(tasks: Sequence[Task], config: ProblemsConfig) -> dict[Split, Sequence[Task]]:
    """The tasks by split, each shuffled.

    Raises `UsageError` where the ideas can't be dealt out so, or nothing is left to train on.
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
