"""The watchdog: a stage that makes no progress is found, its stacks are kept, its actor is restarted once.

    with Watchdog(seconds, calls, actors, stacks, progress.note, failed=shutdown.request, paused=...):
        ...

Progress is what an actor's pulse shows (tokens, programs, answers), and each answer that comes. What waits for an
answer longer than `seconds` without any is stalled: the stacks of all actors and of the driver are written, and the
actor is killed, upon which whoever waits replaces it and asks again. A second time, or where no actor is the culprit
(the storage, the driver's own code), the run ends. Runs in a thread, so that a driver that hangs is found too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import ray
from ray.exceptions import RayError

from actors.calls import START, InFlightCall, InFlightCalls
from actors.judge import PROBE
from actors.watched import Pulse
from raypoly.errors import RaypolyError, Stalled
from workflows.liveness.stacks import Stacks

START_SECONDS = 900.0
"""An actor that starts says nothing until it is up: it has so long at least."""
_LONGEST_LOOK = 15.0
DRIVER, STORAGE = "the driver", "the storage"


@dataclass
class _Known:
    """What is known of an actor."""

    actor: Any
    pulse: Pulse | None = None
    asked: Any = None
    """A pulse that is not there yet."""


class Watchdog:
    """Up inside `with`, which is entered in the driver's event loop."""

    def __init__(
        self,
        seconds: float,
        calls: InFlightCalls,
        actors: Callable[[], Mapping[str, Any]],
        stacks: Stacks,
        note: Callable[[str], None],
        failed: Callable[[RaypolyError], None],
        paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self._seconds, self._calls, self._actors = seconds, calls, actors
        self._stacks, self._note, self._failed, self._paused = stacks, note, failed, paused
        self._every = min(_LONGEST_LOOK, seconds / 8)
        self._known: dict[str, _Known] = {}
        self._struck: set[str] = set()
        self._over = threading.Event()
        self._driver = InFlightCall("its own code", DRIVER)

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()

    def step_done(self) -> None:
        """What was restarted has helped: the next stall is a first one again."""
        self._struck.clear()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._over.wait(self._every):
            now = time.monotonic()
            if now - last > self._every + self._seconds / 4:  # this process was stopped, and time went by for all
                self._forgive()
            last = now
            try:
                self._loop.call_soon_threadsafe(self._driver.beat)
                self._look()
            except (RayError, RuntimeError, ValueError, OSError) as error:  # Ray or the loop is about to end
                if self._over.is_set():
                    return
                self._note(f"The watchdog could not look: {type(error).__name__}: {error}")

    def _forgive(self) -> None:
        for call in [*self._calls.open, self._driver]:
            call.beat()

    def _look(self) -> None:
        self._feel_pulses()
        if self._paused():
            for call in self._calls.open:
                if call.stage != PROBE:
                    call.beat()
        now = time.monotonic()
        for call in [*self._calls.open, self._driver]:
            limit = max(self._seconds, START_SECONDS) if call.stage == START else self._seconds
            if now - call.since > limit and not self._over.is_set():
                self._stalled(call, now - call.since)
                return

    def _feel_pulses(self) -> None:
        actors = {actor._actor_id.hex(): actor for actor in self._actors().values()}
        self._known = {key: self._known.get(key) or _Known(actor) for key, actor in actors.items()}
        for key, known in self._known.items():
            if known.asked is None:
                known.asked = known.actor.pulse.remote()
            elif ray.wait([known.asked], timeout=0)[0]:
                answer, known.asked = known.asked, None
                try:
                    pulse: Pulse = ray.get(answer)
                except RayError:  # it is being replaced
                    continue
                if known.pulse is None or known.pulse.beats != pulse.beats:
                    for call in self._calls.open:
                        if call.actor is not None and call.actor._actor_id.hex() == key:
                            call.beat()
                known.pulse = pulse

    def _stalled(self, call: InFlightCall, seconds: float) -> None:
        what = f"{call.who} made no progress for {seconds:.0f} s ({call.stage})"
        place = self._stacks.write(f"{what}.", self._actors(), {key: known.pulse for key, known in self._known.items()})
        if call.actor is None or call.who in self._struck:
            again = ", again after its restart" if call.actor is not None else ""
            self._over.set()
            self._failed(
                Stalled(
                    f"{what}{again}: where each process stands is in {place}. Everything committed is kept, and the "
                    "same command goes on; raise run.stall_seconds where it only needs more time."
                )
            )
            return
        self._struck.add(call.who)
        self._note(f"{what}: it is restarted; where each process stood is in {place}.")
        ray.kill(call.actor)
        for other in self._calls.open:
            if other.actor is call.actor or other.who == call.who:
                other.beat()
