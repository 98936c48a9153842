"""The runs of an experiment, so many at once, until each has been tried once in this start.

    ended = Running(runs, at_once=1, say=print).to_the_end()

Whatever is killed, the same command goes on: a finished run is not done again, one that was begun goes on where it
stood, and one that a process of a killed experiment still trains is waited for. A run that is after another begins when
that one is finished, and not at all in this start where that one fails.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from raypoly.analysis.experiments.planned_runs import PlannedRun
from raypoly.analysis.experiments.training_process import RunningTraining, TrainingExit, is_held
from raypoly.core.tables import duration

_LOOK_SECONDS = 0.2
"""Between looks at what goes on."""


class ExperimentETA:
    """Seconds of finished runs, by their steps."""

    def __init__(self) -> None:
        self._known: dict[int, list[float]] = {}

    def add(self, steps: int, seconds: float) -> None:
        self._known.setdefault(steps, []).append(seconds)

    def of(self, steps: int) -> float | None:
        """Seconds of a run of so many steps; by the nearest ones where none was as long, which is rough: an evaluation
        takes as long in a short run as in a long one. Runs without steps tell nothing of others, and the reverse. None
        before the first is done."""
        alike = [known for known in self._known if (known > 0) == (steps > 0)]
        if not alike:
            return None
        nearest = min(alike, key=lambda known: abs(known - steps))
        return statistics.mean(self._known[nearest]) * max(steps, 1) / max(nearest, 1)

    def left(self, runs: Iterable[tuple[int, float]]) -> float | None:
        """Seconds that runs of (steps, seconds they have had) still take, one after the other."""
        estimates = [(self.of(steps), had) for steps, had in runs]
        if any(whole is None for whole, _ in estimates):
            return None
        return sum(max(0.0, (whole or 0.0) - had) for whole, had in estimates)


class RunQueue:
    """The runs of this start, and estimates of their time."""

    def __init__(self, runs: Sequence[PlannedRun], at_once: int, say: Callable[[str], None]) -> None:
        self._runs, self._at_once, self._say = runs, at_once, say
        todo = [run for run in runs if not run.finished]
        # What an earlier start left behind uses the machine already, so it is what this one waits for first.
        self._waiting = deque(sorted(todo, key=lambda run: not is_held(run)))
        self._going: list[RunningTraining] = []
        self._left_behind: list[PlannedRun] = []
        self._eta = ExperimentETA()
        self._begun = {run.name for run in todo if run.directory.resumes}
        self._let_on = {run.name for run in runs if run.lets_on}
        for run in runs:
            if run.finished:
                self._eta.add(run.steps, run.result.seconds)

    def to_the_end(self) -> list[TrainingExit]:
        """The outcome of each run of this start, without those that were finished before."""
        ended: list[TrainingExit] = []
        try:
            while self._waiting or self._going or self._left_behind:
                self._start()
                time.sleep(_LOOK_SECONDS)
                ended += self._look()
            return ended
        finally:  # whatever the reason, the processes of this start commit and end
            if self._going:
                self._say(f"{', '.join(each.run.name for each in self._going)}: what is under way is committed")
            for each in self._going:
                each.stop()
            for each in self._going:
                each.end()

    def _start(self) -> None:
        self._leave_out()
        while len(self._going) + len(self._left_behind) < self._at_once:
            run = next((run for run in self._waiting if not self._awaited(run)), None)
            if run is None:
                return
            self._waiting.remove(run)
            going = RunningTraining.begin(run)
            if going is None:
                self._say(f"{run.name}: a process of an earlier start is at it, and is waited for")
                self._left_behind.append(run)
            else:
                self._going.append(going)

    def _leave_out(self) -> None:
        """Drop the runs that can't begin in this start."""
        while blocked := next((run for run in self._waiting if self._never(run)), None):
            self._waiting.remove(blocked)
            missing = self._never(blocked)[0]
            why = "does not pass" if missing.finished else "is not finished"
            self._say(f"{blocked.name}: is not started, since {missing.name} {why}")

    def _awaited(self, run: PlannedRun) -> list[PlannedRun]:
        """The runs that it needs and that do not let it on yet."""
        return [before for before in run.before if before.name not in self._let_on]

    def _never(self, run: PlannedRun) -> list[PlannedRun]:
        """Those of them on which nobody is at work any more, or waits to be."""
        there = (*self._waiting, *self._left_behind, *(going.run for going in self._going))
        return [before for before in self._awaited(run) if before.name not in {other.name for other in there}]

    def _look(self) -> Iterator[TrainingExit]:
        for run in [run for run in self._left_behind if not is_held(run)]:
            self._left_behind.remove(run)
            if run.finished:
                yield self._announce(TrainingExit(run, "finished", run.result.seconds, "finished, by an earlier start"))
            else:
                self._waiting.appendleft(run)
        for going in [going for going in self._going if going.over]:
            self._going.remove(going)
            yield self._announce(going.end())

    def _announce(self, ended: TrainingExit) -> TrainingExit:
        run = ended.run
        if ended.outcome == "finished":
            self._eta.add(run.steps, run.result.seconds if run.name in self._begun else ended.seconds)
            self._let_on |= {run.name} if run.lets_on else set()
        result = run.result.gains if ended.outcome == "finished" else ""
        self._say(f"{run.name}: {ended.words}{result}  {duration(ended.seconds)}{self._rest()}")
        return ended

    def _rest(self) -> str:
        """Words for the number of runs left and their time."""
        going = [(each.run.steps, each.seconds) for each in self._going]
        going += [(run.steps, 0.0) for run in (*self._left_behind, *self._waiting)]
        if not going:
            return ""
        left = self._eta.left(going)
        estimate = f", some {duration(left / self._at_once)}" if left is not None else ""
        return f"; {len(going)} of {len(self._runs)} left{estimate}"
