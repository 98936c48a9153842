"""One run under its plan of kills."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from raypoly import Run
from raypoly.core.errors import RaypolyError
from raypoly.run.store import open_store
from tests.support.commit_watcher import CommitWatcher
from tests.support.driver_process import Driver
from tests.support.kill_plan import Kill
from tests.support.run_differences import run_differences

PATIENCE = 900.0
"""Seconds in which a run must get on, however busy the machine is."""


@dataclass
class Outcome:
    """What became of one run."""

    number: int
    engine: str
    undisturbed: bool = False
    struck: Counter[str] = field(default_factory=Counter)
    """Kills that hit something, by kind."""
    missed: Counter[str] = field(default_factory=Counter)
    """Kills that the run was too quick for, by kind."""
    starts: int = 0
    """How often the command was given."""
    gave_up: int = 0
    """How often it ended by itself before the run was done, and was given again."""
    faults: list[str] = field(default_factory=list)
    """Why it is not equal, in sentences."""
    objects: int = 0
    """Committed objects that were watched."""
    used: int = 0
    """Nodes that joined and had a scorer."""
    seconds: float = 0.0
    stood: float = 0.0
    """The longest time without a commit: from the first blow on, or from the first commit on."""


class World(Protocol):
    """Machines with a Ray, which outlive a run."""

    @property
    def used(self) -> int:
        """Nodes that joined since the last `restore` and had a scorer."""

    def restore(self) -> None:
        """As at first: before a run, and where one gave up."""

    def mend(self) -> None:
        """What the command needs is there."""

    def hit(self, kind: str, actor: str, seconds: float) -> bool:
        """False where there is nothing to hit."""


class Disturbed:
    """Drives one run to its end through kills, on machines that outlive it."""

    def __init__(self, number: int, engine: str, driver: Driver, machines: World) -> None:
        self.outcome = Outcome(number, engine)
        self._machines, self._driver = machines, driver
        self._struck: float | None = None

    def run(self, plan: Sequence[Kill], undisturbed: str | None) -> Outcome:
        """`undisturbed`: the place of the run that it is compared with."""
        started = time.monotonic()
        self.outcome.undisturbed = undisturbed is None
        self._machines.restore()
        try:
            with CommitWatcher(open_store(self._driver.place, make=False)) as watcher:
                for kill in plan:
                    self._start()
                    if self._reached(kill, watcher) and self._strike(kill):
                        self.outcome.struck[kill.kind] += 1
                        watcher.look_again()
                    else:
                        self.outcome.missed[kill.kind] += 1
                self._finish()
            self.outcome.faults += watcher.faults
            self.outcome.objects = watcher.objects
            self.outcome.stood = longest_wait(watcher.times, self._struck)
            if undisturbed is not None:
                self.outcome.faults += run_differences(Run(self._driver.place), Run(undisturbed))
        except (subprocess.TimeoutExpired, TimeoutError, RaypolyError) as error:
            self.outcome.faults.append(str(error))
        finally:
            if self._driver.process is not None:
                self._driver.kill()
        self.outcome.seconds = time.monotonic() - started
        self.outcome.used = self._machines.used
        return self.outcome

    def _start(self) -> None:
        """Give the command, unless it is at work."""
        self._machines.mend()
        if not self._driver.lives:
            if self._driver.process is not None and self._driver.finish() != 0:
                self.outcome.gave_up += 1
            self._driver.start()
            self.outcome.starts += 1

    def _reached(self, kill: Kill, watcher: CommitWatcher) -> bool:
        """Wait until the run is where the blow falls; False where it has ended before."""
        until = time.monotonic() + PATIENCE
        while watcher.commits < kill.after:
            if not self._driver.lives:
                return False
            if time.monotonic() > until:
                raise TimeoutError(f"no progress in {PATIENCE:.0f} s: {watcher.commits} commits")
            time.sleep(0.01)
        time.sleep(kill.delay)
        return self._driver.lives

    def _strike(self, kill: Kill) -> bool:
        """False where the run ended before there was something to hit."""
        if self._struck is None:
            self._struck = time.monotonic()
        if kill.kind == "driver":
            self._driver.kill()
            return True
        until = time.monotonic() + PATIENCE
        while self._driver.lives and time.monotonic() < until:
            if self._machines.hit(kill.kind, kill.actor, kill.seconds):
                return True
            time.sleep(0.05)  # it may be starting
        return False

    def _finish(self) -> None:
        """To the end; what gives up is asked again, as a user would, and counted."""
        for _ in range(3):
            self._start()
            code = self._driver.finish(PATIENCE)
            if code == 0:
                return
            self.outcome.gave_up += 1
            self._machines.restore()
        self.outcome.faults.append(f"it ended with exit code {code}: {self._driver.log()[-600:]}")


def longest_wait(commits: Sequence[float], since: float | None) -> float:
    """Of those that end after `since`, the longest time between two commits; without it, from the first one on."""
    times = [time for time in commits if since is None or time > since]
    return (
        max((after - before for before, after in pairwise([since or times[0], *times])), default=0.0) if times else 0.0
    )
