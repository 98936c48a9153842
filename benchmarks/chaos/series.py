"""The runs of one engine: an undisturbed one, then as many as its kills need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from benchmarks.chaos.disturbed import Outcome
from benchmarks.chaos.fleet import Fleet, Task
from tests.support.kill_plan import Kill


class Series:
    """Says which run comes next, until so many kills have struck."""

    def __init__(self, engine: str, kills: int, plans: Iterator[list[Kill]], overrides: Sequence[str]) -> None:
        self.engine, self.kills, self.outcomes = engine, kills, list[Outcome]()
        self._plans, self._overrides = plans, [*overrides, f"generator.engine={engine}"]
        self._reference: int | None = None
        self._under_way = 0
        self._most = 2 * kills
        """Blows in all: where most miss, more runs don't help."""

    @property
    def done(self) -> float:
        """The share of kills that have struck or are under way."""
        return (self._under_way + self.struck) / self.kills

    @property
    def struck(self) -> int:
        return sum(outcome.struck.total() for outcome in self.outcomes)

    @property
    def ready(self) -> bool:
        """Whether another run can start now."""
        if self._reference is None:
            return True
        return bool(self.outcomes) and not self.outcomes[0].faults and self.done < 1 and self._most > 0

    def next(self, number: int) -> Task:
        """The run to start, with this number."""
        if self._reference is None:
            self._reference = number
            return Task(number, self.engine, self._overrides)
        plan = next(self._plans)[: self.kills - self.struck - self._under_way]
        self._under_way += len(plan)
        self._most -= len(plan)
        return Task(number, self.engine, self._overrides, plan, self._reference)

    def ended(self, task: Task, outcome: Outcome) -> None:
        self._under_way -= len(task.plan)
        self.outcomes.append(outcome)


def run_all(fleet: Fleet, series: Sequence[Series]) -> Iterator[Outcome]:
    """Every run as it ends; the engines take turns, by what share of their kills is done."""
    running: dict[Future[Outcome], tuple[Series, Task]] = {}
    number = 0
    while True:
        while len(running) < fleet.size and (ready := [one for one in series if one.ready]):
            chosen = min(ready, key=lambda one: one.done)
            task = chosen.next(number)
            running[fleet.run(task)] = chosen, task
            number += 1
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            owner, task = running.pop(future)
            outcome = future.result()
            owner.ended(task, outcome)
            yield outcome
