"""Which problems a step trains on: epochs without replacement, seeded, a function of the step alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from raypoly.errors import UsageError
from raypoly.seeds import derive
from raypoly.values import Problem


class ProblemOrder(ABC):
    """Problems on one line without an end, of which each step takes some that follow each other."""

    def __init__(self, problems: Sequence[Problem], per_step: int, seed: int, refill: int = 0) -> None:
        """`refill`: further problems that a step may take. Raises `UsageError` where there are not so many."""
        _refuse_too_few(problems, per_step, refill)
        self._problems, self._per_step, self._seed = problems, per_step, seed

    def batch(self, step: int) -> tuple[Problem, ...]:
        """The problems of a step, by slot."""
        first = self.cursor_at(step)
        return tuple(self.at(first + slot)[1] for slot in range(self._per_step))

    @property
    def size(self) -> int:
        """Problems in a round of the line, which has each of them once."""
        return len(self._problems)

    @abstractmethod
    def cursor_at(self, step: int) -> int:
        """Where a step begins, for `at`."""

    @abstractmethod
    def at(self, cursor: int) -> tuple[int, Problem]:
        """The problem at a cursor, which counts from 0: (its number among the problems, the problem)."""


class EpochOrder(ProblemOrder):
    """Every problem once an epoch; an epoch's order depends on the seed and the epoch's number.

    The same step gives the same problems, whatever came before.
    """

    def __init__(self, problems: Sequence[Problem], per_step: int, seed: int, refill: int = 0) -> None:
        super().__init__(problems, per_step, seed, refill)
        self._epoch = lru_cache(maxsize=4)(self._shuffled)

    def cursor_at(self, step: int) -> int:
        """Where a step begins, for `at`."""
        epoch, index = divmod(step, self.size // self._per_step)
        return epoch * self.size + index * self._per_step

    def at(self, cursor: int) -> tuple[int, Problem]:
        """(Number, problem) at a cursor that counts from 0 through whole epochs, one after the other."""
        epoch, index = divmod(cursor, self.size)
        number = self._epoch(epoch)[index]
        return number, self._problems[number]

    def _shuffled(self, epoch: int) -> tuple[int, ...]:
        seed = derive(self._seed, "order", epoch)
        return tuple(np.random.Generator(np.random.Philox(key=seed)).permutation(len(self._problems)).tolist())


def _refuse_too_few(problems: Sequence[Problem], per_step: int, refill: int) -> None:
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
