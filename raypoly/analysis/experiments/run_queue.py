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
import os
import signal
import statistics
import subprocess
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from raypoly.analysis.experiments.planned_runs import PlannedRun
from raypoly.core.errors import PausedTooLong, UsageError
from raypoly.core.text import duration
from raypoly.run.run_folder import runs_root

_LOOK_SECONDS = 0.2


class RunQueue:
    def __init__(self, runs: Sequence[PlannedRun], at_once: int, say: Callable[[str], None]) -> None:
        self._runs, self._at_once, self._say = runs, at_once, say
        todo = [run for run in runs if not run.finished]
        # What an earlier start left behind uses the machine already, so it is what this one waits for first.
        self._waiting = deque(sorted(todo, key=lambda run: not is_held(run)))
        self._going: list[RunningTraining] = []
        self._let_on = {run.name for run in runs if run.lets_on}
        self._seconds: dict[int, list[float]] = defaultdict(list)  # of finished runs, by their steps
        for run in runs:
            if run.finished:
                self._seconds[run.steps].append(run.result.seconds)

    def to_the_end(self) -> list[TrainingExit]:
        """Outcomes of all runs that were not finished before."""
        ended: list[TrainingExit] = []
        try:
            while self._waiting or self._going:
                self._start()
                time.sleep(_LOOK_SECONDS)
                ended += self._look()
            return ended
        finally:  # whatever the reason, the processes of this start commit and end
            own = [each for each in self._going if each.is_own]
            if own:
                self._say(f"{', '.join(each.run.name for each in own)}: what is under way is committed")
            for each in own:
                each.stop()
            for each in own:
                each.end()

    def _start(self) -> None:
        self._leave_out()
        while len(self._going) < self._at_once:
            run = next((run for run in self._waiting if not self._awaited(run)), None)
            if run is None:
                return
            self._waiting.remove(run)
            self._going.append(RunningTraining.begin(run))
            if not self._going[-1].is_own:
                self._say(f"{run.name}: a process of an earlier start is at it, and is waited for")

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
        there = {other.name for other in (*self._waiting, *(going.run for going in self._going))}
        return [before for before in self._awaited(run) if before.name not in there]

    def _look(self) -> Iterator[TrainingExit]:
        for going in [going for going in self._going if going.over]:
            self._going.remove(going)
            if going.is_own or going.run.finished:
                yield self._announce(going.end())
            else:
                self._waiting.appendleft(going.run)

    def _announce(self, ended: TrainingExit) -> TrainingExit:
        run, result = ended.run, ""
        if ended.outcome == "finished":
            self._seconds[run.steps].append(max(run.result.seconds, ended.seconds))  # it may have begun earlier
            self._let_on |= {run.name} if run.lets_on else set()
            result = run.result.gains
        self._say(f"{run.name}: {ended.words}{result}  {duration(ended.seconds)}{self._rest()}")
        return ended

    def _rest(self) -> str:
        left = [(each.run.steps, each.seconds) for each in self._going] + [(run.steps, 0.0) for run in self._waiting]
        if not left:
            return ""
        estimate = ""
        if all(steps in self._seconds for steps, _ in left):
            seconds = sum(max(0.0, statistics.mean(self._seconds[steps]) - had) for steps, had in left)
            estimate = f", some {duration(seconds / self._at_once)}"
        return f"; {len(left)} of {len(self._runs)} left{estimate}"


@dataclass(frozen=True)
class TrainingExit:
    run: PlannedRun
    outcome: Literal["finished", "stopped", "paused", "failed"]
    seconds: float
    words: str


class RunningTraining:
    def __init__(self, run: PlannedRun, process: subprocess.Popen[bytes] | None = None, log_began: int = 0) -> None:
        """Without `process`: that of an earlier start is at the run."""
        self.run, self._process, self._log_began = run, process, log_began
        self._began = time.monotonic()

    @classmethod
    def begin(cls, run: PlannedRun) -> RunningTraining:
        """Start the run's command, unless a process of an earlier start is at the run."""
        lock = _locked(run.lock)
        if lock is None:
            return cls(run)
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
    def is_own(self) -> bool:
        return self._process is not None

    @property
    def over(self) -> bool:
        return not is_held(self.run) if self._process is None else self._process.poll() is not None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def end(self) -> TrainingExit:
        """Wait for this start's process; that of an earlier start is over and has finished the run."""
        if self._process is None:
            return TrainingExit(self.run, "finished", self.run.result.seconds, "finished, by an earlier start")
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


STARTS, LOCK = "starts.txt", "experiment.lock"


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
    """Hold the folder and note `at_once` in it. Raises `UsageError` where it is held or can't be written."""
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
        with (out / STARTS).open("a") as starts:
            starts.write(f"{at_once}\n")
        yield


def most_at_once(out: Path) -> int:
    """Of any start of the experiment."""
    path = out / STARTS
    lines = path.read_text().splitlines() if path.exists() else []
    return max((int(line) for line in lines if line.isdecimal()), default=1)
