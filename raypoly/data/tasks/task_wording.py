"""The statement of a task: one of its wordings, in one of the frames, with one of the parameters' names.

word_task(task, random.Random(0))
# "Write a Python function `total_of_evens(nums)` that returns the sum of the even numbers in nums. ..."
"""

from __future__ import annotations

import random
import re

from raypoly.data.tasks.task_kinds import Task, read_task_file

_PLACE = re.compile(r"<(\w+)>")
_DRAWS = 10


def word_task(task: Task, rng: random.Random) -> str:
    """What is asked for, what comes in, what edge cases give, and in every second statement one call of it."""
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
