"""The queue of an experiment's runs, and the lock on its folder.

    with at_work(out, at_once=1):
        ended = RunQueue(runs, at_once=1, say=print).to_the_end()

Each run is a process of its own and may outlive this one: it inherits a locked file, and the kernel frees the lock when
it ends in any way. So the same command goes on after any kill: finished runs stay, begun ones go on, and one that a
process of an earlier start is still at is waited for. A run starts when those that it is after are finished.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import statistics
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from raypoly.analysis.experiments.planned_runs import PlannedRun
from raypoly.core import __version__
from raypoly.core.errors import PausedTooLong, UsageError
from raypoly.core.text import duration
from raypoly.run.run_folder import runs_root

_LOOK_SECONDS = 0.2


class ExperimentETA:
    """Estimates by the seconds of finished runs."""

    def __init__(self) -> None:
        self._known: dict[int, list[float]] = {}

    def add(self, steps: int, seconds: float) -> None:
        self._known.setdefault(steps, []).append(seconds)

    def of(self, steps: int) -> float | None:
        """Seconds of a run, by runs of the nearest length; None before the first is done."""
        # Runs without steps measure alone, and tell nothing of others, nor these of them.
        alike = [known for known in self._known if (known > 0) == (steps > 0)]
        if not alike:
            return None
        nearest = min(alike, key=lambda known: abs(known - steps))
        return statistics.mean(self._known[nearest]) * max(steps, 1) / max(nearest, 1)

    def left(self, runs: Iterable[tuple[int, float]]) -> float | None:
        """Seconds left of runs of (steps, seconds so far), one after the other."""
        estimates = [(self.of(steps), had) for steps, had in runs]
        if any(whole is None for whole, _ in estimates):
            return None
        return sum(max(0.0, (whole or 0.0) - had) for whole, had in estimates)


class RunQueue:
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
        """Outcomes of all runs that were not finished before."""
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
        while blocked := next((run for run in self._waiting if self._never(run)), None):
            self._waiting.remove(blocked)
            missing = self._never(blocked)[0]
            why = "does not pass" if missing.finished else "is not finished"
            self._say(f"{blocked.name}: is not started, since {missing.name} {why}")

    def _awaited(self, run: PlannedRun) -> list[PlannedRun]:
        return [before for before in run.before if before.name not in self._let_on]

    def _never(self, run: PlannedRun) -> list[PlannedRun]:
        # Of the awaited ones, those that will not be made in this start.
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
        going = [(each.run.steps, each.seconds) for each in self._going]
        going += [(run.steps, 0.0) for run in (*self._left_behind, *self._waiting)]
        if not going:
            return ""
        left = self._eta.left(going)
        estimate = f", some {duration(left / self._at_once)}" if left is not None else ""
        return f"; {len(going)} of {len(self._runs)} left{estimate}"


Outcome = Literal["finished", "stopped", "paused", "failed"]


@dataclass(frozen=True)
class TrainingExit:
    run: PlannedRun
    outcome: Outcome
    seconds: float
    words: str


class RunningTraining:
    def __init__(self, run: PlannedRun, process: subprocess.Popen[bytes], log_began: int) -> None:
        self.run, self._process, self._log_began = run, process, log_began
        self._began = time.monotonic()

    @classmethod
    def begin(cls, run: PlannedRun) -> RunningTraining | None:
        """Start the run's command; None if another process is at the run."""
        lock = _locked(run.lock)
        if lock is None:
            return None
        try:
            with run.log.open("ab") as log:
                began = log.tell()
                process = subprocess.Popen(
                    run.command,
                    env={"WANDB_RUN_GROUP": run.place.parent.name, **os.environ},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a terminal's Ctrl-C reaches it through the experiment, once
                    pass_fds=[lock],
                )
        finally:
            os.close(lock)
        return cls(run, process, began)

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> TrainingExit:
        code, seconds = self._process.wait(), self.seconds
        if code == 0 and self.run.finished:
            return TrainingExit(self.run, "finished", seconds, "finished")
        if code == 0:
            return TrainingExit(self.run, "stopped", seconds, "was stopped before its end")
        said = last_log_line(self.run.log, self._log_began)
        if code == PausedTooLong.exit_code:
            return TrainingExit(self.run, "paused", seconds, f"is paused: {said}")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return TrainingExit(self.run, "failed", seconds, f"failed with {how}: {said} ({self.run.log})")


def is_held(run: PlannedRun) -> bool:
    """Whether any process is at the run."""
    if not run.lock.exists():
        return False
    lock = _locked(run.lock)
    if lock is not None:
        os.close(lock)
    return lock is None


def last_log_line(log: Path, begin: int = 0) -> str:
    """Last line of a log from byte `begin` on, but for the one that names a traceback's file."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    said = [line for line in lines if line and not line.startswith("The traceback is in")]
    return said[-1].rstrip(".") if said else "it said nothing"


def _locked(path: Path) -> int | None:
    """Descriptor of the locked file; None if another process has the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


STARTS, LOCK = "starts.jsonl", "experiment.lock"


def folder_of(out: str | None, name: str) -> Path:
    """The folder `out`, else one under `$RAYPOLY_RUNS`. Raises `UsageError` for a URI."""
    place = f"{runs_root().rstrip('/')}/experiment-{name}" if out is None else out
    if "://" in place:
        given = f"RAYPOLY_RUNS={runs_root()}" if out is None else f"--out {out}"
        why = "can't hold an experiment, whose logs need a folder of this machine"
        raise UsageError(f"{given} {why}: give --out FOLDER.")
    return Path(place).expanduser().absolute()


@contextmanager
def at_work(out: Path, at_once: int) -> Iterator[None]:
    """Hold the folder, and note `at_once` in it. Raises `UsageError` where another experiment holds it, or it can't be
    written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / LOCK).open("a")
    except OSError as error:
        raise UsageError(f"--out {out} can't be used ({error.strerror}): give another one.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"Another experiment is at work in {out}: wait for it, or give another --out.") from None
        start = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "raypoly": __version__, "at_once": at_once}
        with (out / STARTS).open("a") as starts:
            starts.write(json.dumps(start) + "\n")
        yield


def most_at_once(out: Path) -> int:
    """Of any start of the experiment."""
    path = out / STARTS
    lines = path.read_text().splitlines() if path.exists() else []
    return max((_at_once(line) for line in lines), default=1)


def _at_once(line: str) -> int:
    try:
        return int(json.loads(line)["at_once"])
    except (ValueError, KeyError, TypeError):  # a kill may leave half a line
        return 1
