"""The order of problems: an endless line of them, seeded; each step takes some.

    order = EpochOrder(problems, per_step=20, seed=0)
    order.batch(12)                                     # the problems of a step of fixed size

    problems = StepProblems(order, cursor, 20)          # a step that takes as many as it needs, from a cursor on
    problems.planned; problems.more(3); problems.cursor

A cursor is an index into the line, from 0. The line is whole epochs, or follows the problems' pass rates
(`problems.order=pass_rate`):

    rates = PassRates()
    rates.take(row)                  # the row of each completed step, in order
    PassRateOrder(problems, per_step=32, seed=0, rates=rates).batch(12)     # once `rates` has the rows of steps 0 to 11

The rates depend on journalled rows alone: a resumed run draws the same problems.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Self

import numpy as np

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Float64, Problem


class ProblemOrder(ABC):
    def __init__(self, problems: Sequence[Problem], per_step: int, seed: int, refill: int = 0) -> None:
        """A step takes `per_step` problems and at most `refill` more. Raises `UsageError` where there are too few."""
        there = f"but there are only {len(problems)} training problems"
        if len(problems) < per_step:
            raise UsageError(f"train.prompts_per_step={per_step}, {there}: set train.prompts_per_step={len(problems)}.")
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


PROBLEMS, PASSED, ROLLOUTS = "problems", "passed", "rollouts"
"""Keys of a step's row, by slot: ids, and how many of `rollouts` passed, null where it is unknown."""
_PASS = 1.0  # the least reward with which a rollout counts as passed
_DECAY = 0.5  # the factor on a problem's earlier rollouts at each new visit, since the policy has changed
# The initial passes, and failures, of each problem (Jeffreys 1946): an unsampled problem has rate one half.
_PRIOR = 0.5
FLOOR = 0.05
"""Added to each weight, so that problems that never or always pass are still drawn at times."""


class PassRates:
    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, float]] = {}
        self._before, self._newest = self._counts, -1
        self.rows_seen = 0

    def take(self, row: Mapping[str, Any]) -> None:
        """A row without counts changes nothing."""
        self.rows_seen += 1
        self._before, self._newest = dict(self._counts), row["step"]
        for problem, passed in zip(row.get(PROBLEMS, ()), row.get(PASSED, ()), strict=True):
            if passed is not None:
                passes, rollouts = self._counts.get(problem, (0.0, 0.0))
                self._counts[problem] = _DECAY * passes + passed, _DECAY * rollouts + row[ROLLOUTS]

    def before(self, step: int) -> PassRates:
        """By the rows of earlier steps than `step`, which the newest row's step is, or the next one."""
        if self._newest < step:
            return self
        found = PassRates()
        found._counts = self._before
        return found

    def rate(self, problem: str) -> float:
        """(passes + 1/2) / (rollouts + 1), where each earlier visit counts half."""
        passes, rollouts = self._counts.get(problem, (0.0, 0.0))
        return (passes + _PRIOR) / (rollouts + 2 * _PRIOR)

    def weight(self, problem: str) -> float:
        """4 p (1 - p) + `FLOOR`: the variance of a rollout's reward over its largest, p the rate."""
        rate = self.rate(problem)
        return FLOOR + 4 * rate * (1 - rate)


class PassRateOrder(ProblemOrder):
    """Ranks all problems anew for each step, by chance and `rates`; the step takes the first ones. There are no epochs.

    A step's problems are drawn without replacement by their weights (Efraimidis & Spirakis 2006, algorithm A: the
    largest u^(1/w) for u uniform), from a generator of the seed and the step alone. The caller keeps `rates` current.
    """

    def __init__(
        self, problems: Sequence[Problem], per_step: int, seed: int, rates: PassRates, refill: int = 0, ahead: int = 0
    ) -> None:
        """`ahead`: how many steps before a step `rates` has no row of when the step is begun."""
        super().__init__(problems, per_step, seed, refill)
        self._rates, self._ahead = rates, ahead
        self._ranked: tuple[tuple[int, int], Sequence[int]] = ((-1, -1), ())

    def cursor_at(self, step: int) -> int:
        return step * self.size

    def at(self, cursor: int) -> tuple[int, Problem]:
        """The sequence is the rankings of all steps, concatenated."""
        step, rank = divmod(cursor, self.size)
        now = step, self._rates.rows_seen
        if self._ranked[0] != now:
            self._ranked = now, self._ranking(step)
        number = self._ranked[1][rank]
        return number, self._problems[number]

    def _ranking(self, step: int) -> Sequence[int]:
        seed = derive(self._seed, "order by pass rate", step)
        uniform = np.random.Generator(np.random.Philox(key=seed)).random(self.size)
        rates = self._rates.before(step - self._ahead) if self._ahead else self._rates
        weights = np.array([rates.weight(problem.id) for problem in self._problems])
        # log u / w orders as u^(1/w) does and does not underflow; u = 0 comes last
        with np.errstate(divide="ignore"):
            keys = np.log(uniform) / weights
        ranking: list[int] = np.argsort(-keys, kind="stable").tolist()
        return ranking


def pass_count_row(problems: Sequence[str], rewards: Sequence[Float64]) -> dict[str, Any]:
    """The keys of a step's row that `take` reads; `rewards` are float64 [N] a problem, NaN where unknown."""
    passed = [int(np.sum(r >= _PASS)) if np.all(np.isfinite(r)) else None for r in rewards]
    return {PROBLEMS: list(problems), PASSED: passed, ROLLOUTS: len(rewards[0])}


def build_problem_order(config: Config, problems: Sequence[Problem], rates: PassRates) -> ProblemOrder:
    train = config.train
    if config.problems.order == "pass_rate":
        return PassRateOrder(problems, train.prompts_per_step, train.seed, rates, train.refill, train.ahead)
    return EpochOrder(problems, train.prompts_per_step, train.seed, train.refill)
