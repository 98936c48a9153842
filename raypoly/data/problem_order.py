"""The order of problems: an endless line of them, seeded; each step takes some.

    order = EpochOrder(problems, per_step=20, seed=0)
    order.batch(12)                                     # the problems of a step of fixed size

    problems = StepProblems(order, cursor, 20)          # a step that takes as many as it needs, from a cursor on
    problems.planned; problems.more(3); problems.cursor

A cursor is an index into the line, from 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Self

import numpy as np

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Problem


class ProblemOrder(ABC):
    def __init__(self, problems: Sequence[Problem], per_step: int, seed: int, refill: int = 0) -> None:
        """A step takes `per_step` problems and at most `refill` more. Raises `UsageError` where there are too few."""
        there = f"but there are only {len(problems)} training problems"
        if len(problems) < per_step:
            raise UsageError(f"train.prompts_per_step={per_step}, {there}: lower it.")
        if len(problems) < per_step + refill:
            both = (
                f"train.prompts_per_step={per_step} and train.refill={refill} are {per_step + refill} problems a step"
            )
            raise UsageError(f"{both}, {there}: lower either.")
        self._problems, self._per_step, self._seed = problems, per_step, seed

    def batch(self, step: int) -> tuple[Problem, ...]:
        first = self.cursor_at(step)
        return tuple(self.at(first + slot)[1] for slot in range(self._per_step))

    @property
    def size(self) -> int:
        """Problems in one round of the line, which has each once."""
        return len(self._problems)

    @abstractmethod
    def cursor_at(self, step: int) -> int:
        """The cursor at which a step begins."""

    @abstractmethod
    def at(self, cursor: int) -> tuple[int, Problem]:
        """(Index among the problems, the problem) at a cursor."""


class EpochOrder(ProblemOrder):
    """Every problem once an epoch; an epoch's order is a function of the seed and the epoch's number alone.

    `batch` drops the rest of an epoch that is too short for a step.
    """

    def __init__(self, problems: Sequence[Problem], per_step: int, seed: int, refill: int = 0) -> None:
        super().__init__(problems, per_step, seed, refill)
        self._epoch = lru_cache(maxsize=4)(self._shuffled)

    def cursor_at(self, step: int) -> int:
        epoch, index = divmod(step, self.size // self._per_step)
        return epoch * self.size + index * self._per_step

    def at(self, cursor: int) -> tuple[int, Problem]:
        """The line is whole epochs, one after the other."""
        epoch, index = divmod(cursor, self.size)
        number = self._epoch(epoch)[index]
        return number, self._problems[number]

    def _shuffled(self, epoch: int) -> tuple[int, ...]:
        seed = derive(self._seed, "order", epoch)
        return tuple(np.random.Generator(np.random.Philox(key=seed)).permutation(len(self._problems)).tolist())


def require_enough(problems: Sequence[Problem], config: Config) -> None:
    """Raise `UsageError` where a step may take more problems than there are to train on."""
    EpochOrder(problems, config.train.prompts_per_step, config.train.seed, config.train.refill)


class StepProblems:
    def __init__(self, order: ProblemOrder, cursor: int, planned: int) -> None:
        """Takes `planned` problems from `cursor` on. Where an epoch has fewer left, it begins at the next epoch."""
        left = order.size - cursor % order.size
        self._order, self._numbers = order, set[int]()
        self.cursor = cursor if left >= planned else cursor + left
        self.planned = self.more(planned)

    @classmethod
    def of_step(cls, config: Config, order: ProblemOrder, step: int, cursor: int) -> Self:
        """Those of `step`. With `train.refill` over epochs they begin at `cursor`, where the step before ended."""
        continues = config.train.refill and config.problems.order == "epochs"
        return cls(order, cursor if continues else order.cursor_at(step), config.train.prompts_per_step)

    @property
    def count(self) -> int:
        return len(self._numbers)

    def more(self, count: int) -> tuple[Problem, ...]:
        """The next problems that the step does not have yet; the order has more than any step may take."""
        found: list[Problem] = []
        while len(found) < count:
            number, problem = self._order.at(self.cursor)
            self.cursor += 1
            if number not in self._numbers:
                self._numbers.add(number)
                found.append(problem)
        return tuple(found)
