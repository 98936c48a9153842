"""Which problems a step trains on: epochs without replacement, seeded, a function of the step alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from raypoly.errors import UsageError
from raypoly.seeds import derive
from raypoly.values import Problem


class Order:
    """Every problem once an epoch; an epoch's order depends on the seed and the epoch's number."""

    def __init__(self, problems: Sequence[Problem], per_step: int, seed: int, refill: int = 0) -> None:
        """`refill`: further problems that a step may take. Raises `UsageError` where there are not so many."""
        refuse_too_few(problems, per_step, refill)
        self._problems, self._per_step, self._seed = problems, per_step, seed
        self._epoch = lru_cache(maxsize=4)(self._shuffled)

    def batch(self, step: int) -> tuple[Problem, ...]:
        """The problems of a step, by slot. The same step gives the same problems, whatever came before."""
        steps_an_epoch = len(self._problems) // self._per_step
        epoch, place = divmod(step, steps_an_epoch)
        order = self._epoch(epoch)
        return tuple(self._problems[order[place * self._per_step + slot]] for slot in range(self._per_step))

    def place(self, step: int) -> int:
        """Where the problems of a step begin, for `at`."""
        epoch, index = divmod(step, self.size // self._per_step)
        return epoch * self.size + index * self._per_step

    @property
    def size(self) -> int:
        """Problems an epoch."""
        return len(self._problems)

    def at(self, place: int) -> tuple[int, Problem]:
        """The problem at a place, from 0, of all epochs one after the other, none cut short; before it its number."""
        epoch, index = divmod(place, self.size)
        number = self._epoch(epoch)[index]
        return number, self._problems[number]

    def _shuffled(self, epoch: int) -> tuple[int, ...]:
        seed = derive(self._seed, "order", epoch)
        return tuple(np.random.Generator(np.random.Philox(key=seed)).permutation(len(self._problems)).tolist())


def refuse_too_few(problems: Sequence[Problem], per_step: int, refill: int) -> None:
    """Raise `UsageError` where a step would need more problems than there are."""
    if len(problems) < per_step:
        raise UsageError(
            f"train.prompts_per_step={per_step}, but there are only {len(problems)} training problems: lower it."
        )
    if len(problems) < per_step + refill:
        raise UsageError(
            f"train.prompts_per_step={per_step} and train.refill={refill} are {per_step + refill} problems a step, "
            f"but there are only {len(problems)} training problems: lower either."
        )
