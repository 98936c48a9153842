"""An order that prefers problems with signal: `problems.order=pass_rate`.

    order = ByPassRate(problems, per_step=32, seed=0, rates=rates)
    order.batch(12)          # once the rows of steps 0 to 11 are in `rates`

A step's problems are drawn without replacement by their weights (Efraimidis & Spirakis 2006, algorithm A: the largest
u^(1/w) for u uniform), from a generator of the seed and the step alone. There are no epochs: what is at one half comes
oftenest, what nobody has seen yet counts as that, and what never or always passes comes now and then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raypoly.problems.epoch_order import ProblemOrder
from raypoly.problems.pass_rates import PassRates
from raypoly.seeds import derive
from raypoly.values import Problem


class PassRateOrder(ProblemOrder):
    """Ranks all problems for each step by `rates`, which somebody else keeps up to date; a step takes the first ones.

    What a step takes is a function of seed, step, and what the rates are now.
    """

    def __init__(
        self, problems: Sequence[Problem], per_step: int, seed: int, rates: PassRates, refill: int = 0
    ) -> None:
        super().__init__(problems, per_step, seed, refill)
        self._rates = rates
        self._ranked: tuple[tuple[int, int], Sequence[int]] = ((-1, -1), ())

    def cursor_at(self, step: int) -> int:
        """Where a step begins, for `at`."""
        return step * self.size

    def at(self, cursor: int) -> tuple[int, Problem]:
        """(Number, problem) at a cursor that counts from 0 through the rankings of all steps, one after the other."""
        step, rank = divmod(cursor, self.size)
        now = step, self._rates.taken
        if self._ranked[0] != now:
            self._ranked = now, self._ranking(step)
        number = self._ranked[1][rank]
        return number, self._problems[number]

    def _ranking(self, step: int) -> Sequence[int]:
        seed = derive(self._seed, "order by pass rate", step)
        uniform = np.random.Generator(np.random.Philox(key=seed)).random(self.size)
        weights = np.array([self._rates.weight(problem.id) for problem in self._problems])
        # log u / w orders as u^(1/w) does, and does not underflow; u = 0 is the last of all
        with np.errstate(divide="ignore"):
            keys = np.log(uniform) / weights
        ranking: list[int] = np.argsort(-keys, kind="stable").tolist()
        return ranking
