"""One training in a process of its own, which outlives the process that started it.

    training = RunningTraining.begin(run)     # None if a process of an earlier start still trains the run
    training.over                             # whether it has ended
    training.end()                            # its TrainingExit

Each run has a locked file, which its process inherits. The kernel frees the lock when the process ends in any way. So a
killed experiment finds the trainings that it left behind, and waits for them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from raypoly.analysis.experiments.planned_runs import PlannedRun
from raypoly.core.errors import PausedTooLong

Outcome = Literal["finished", "stopped", "paused", "failed"]


@dataclass(frozen=True)
class TrainingExit:
    """The outcome of one process of a run."""

    run: PlannedRun
    outcome: Outcome
    seconds: float
    words: str
    """A readable outcome, without a full stop."""


class RunningTraining:
    """A process that trains a run."""

    def __init__(self, run: PlannedRun, process: subprocess.Popen[bytes], log_began: int) -> None:
        self.run, self._process, self._log_began = run, process, log_began
        self._began = time.monotonic()

    @classmethod
    def begin(cls, run: PlannedRun) -> RunningTraining | None:
        """Start the training; None if another process already trains the run."""
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
        """Ask it to commit its work and end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> TrainingExit:
        """Wait for its end."""
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
    """Whether any process trains the run."""
    if not run.lock.exists():
        return False
    lock = _locked(run.lock)
    if lock is not None:
        os.close(lock)
    return lock is None


def last_log_line(log: Path, begin: int = 0) -> str:
    """The last line of a run's log from byte `begin` on, except the line that names a traceback's file."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    said = [line for line in lines if line and not line.startswith("The traceback is in")]
    return said[-1].rstrip(".") if said else "it said nothing"


def _locked(path: Path) -> int | None:
    """The descriptor of the locked file; None if another process has the lock."""
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
