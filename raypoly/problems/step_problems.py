"""Which problems a step takes where steps take as many as they need: the order is one line over epochs.

    problems = StepProblems(order, cursor, 20)          # cursor: where the step before ended
    problems.planned; problems.more(3); problems.cursor

No step takes a problem twice.
"""

from __future__ import annotations

from raypoly.problems.epoch_order import ProblemOrder
from raypoly.values import Problem


class StepProblems:
    """One step's problems."""

    def __init__(self, order: ProblemOrder, cursor: int, planned: int) -> None:
        """Takes `planned` problems from `cursor` on. Where an epoch has fewer left, it begins at the next epoch."""
        left = order.size - cursor % order.size
        self._order, self._numbers = order, set[int]()
        self.cursor = cursor if left >= planned else cursor + left
        """The index, in the order's line of problems, where the next step begins."""
        self.planned = self.more(planned)

    @property
    def count(self) -> int:
        """Problems taken so far."""
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
