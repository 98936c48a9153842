"""Which problems a step takes where steps take as many as they need: the order is one line over epochs.

    taking = Taking(order, place, 20)          # place: where the step before has ended
    taking.planned; taking.more(3); taking.place

No step takes a problem twice.
"""

from __future__ import annotations

from raypoly.problems.epoch_order import ProblemOrder
from raypoly.values import Problem


class StepProblems:
    """One step's problems."""

    def __init__(self, order: ProblemOrder, place: int, planned: int) -> None:
        """From `place` on; where an epoch has fewer than `planned` left, from the next one's start, as without more."""
        left = order.size - place % order.size
        self._order, self._taken = order, set[int]()
        self.place = place if left >= planned else place + left
        """Where the next step begins."""
        self.planned = self.more(planned)

    @property
    def count(self) -> int:
        """Problems so far."""
        return len(self._taken)

    def more(self, count: int) -> tuple[Problem, ...]:
        """The next ones that the step does not have yet; the order knows more than any step may take."""
        found: list[Problem] = []
        while len(found) < count:
            number, problem = self._order.at(self.place)
            self.place += 1
            if number not in self._taken:
                self._taken.add(number)
                found.append(problem)
        return tuple(found)
