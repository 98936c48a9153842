"""The watchdog finds a stage that makes no progress, saves all stacks, and restarts its actor once.

    with Watchdog(seconds, calls, actors, Stacks(store), progress.note, failed=shutdown.request, paused=...):
        ...

Progress is what an actor's pulse shows (tokens, programs, answers), and each answer that arrives. A call that waits
longer than `seconds` without any progress is stalled. The Python stacks of all actors and of the driver are written to
`<run>/stacks/<time>.txt`, and the actor is killed, upon which its caller replaces it and asks again. The run ends if
the same actor stalls again, or if no actor is the cause (the storage, the driver's own code). The watchdog is a thread,
so it also finds a driver that hangs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import ray
from ray.exceptions import RayError

from actors.calls import START, InFlightCall, InFlightCalls
from actors.judge import PROBE
from actors.watched import Pulse
from raypoly.core.errors import RaypolyError, Stalled
from workflows.liveness.ray_internals import actor_id
from workflows.liveness.stacks import Stacks

_START_SECONDS = 900.0
"""The least time for an actor to start, during which it has no pulse."""
_LONGEST_INTERVAL = 15.0
DRIVER, STORAGE = "the driver", "the storage"


@dataclass
class _Known:
    """What is known about an actor."""

    actor: Any
    pulse: Pulse | None = None
    asked: Any = None
    """The answer to the last request for a pulse, until it arrives."""


class Watchdog:
    """Runs inside `with`, which has to be entered in the driver's event loop."""

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
        self._every = min(_LONGEST_INTERVAL, seconds / 8)
        self._known: dict[str, _Known] = {}
        self._struck: set[str] = set()
        self._over = threading.Event()
        self._driver = InFlightCall("its own code", DRIVER)

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()

    def step_done(self) -> None:
        """A step is done, so the restart has helped: the next stall counts as the first again."""
        self._struck.clear()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._over.wait(self._every):
            now = time.monotonic()
            if now - last > self._every + self._seconds / 4:  # this process itself was stopped
                for call in [*self._calls.open, self._driver]:
                    call.beat()
            last = now
            try:
                self._loop.call_soon_threadsafe(self._driver.beat)
                self._find_stall()
            except (RayError, RuntimeError, ValueError, OSError) as error:  # Ray or the loop is about to end
                if self._over.is_set():
                    return
                self._note(f"The watchdog could not look: {type(error).__name__}: {error}")

    def _find_stall(self) -> None:
        self._read_pulses()
        if self._paused():
            for call in self._calls.open:
                if call.stage != PROBE:
                    call.beat()
        now = time.monotonic()
        for call in [*self._calls.open, self._driver]:
            limit = max(self._seconds, _START_SECONDS) if call.stage == START else self._seconds
            if now - call.since > limit and not self._over.is_set():
                self._handle_stall(call, now - call.since)
                return

    def _read_pulses(self) -> None:
        actors = {actor_id(actor): actor for actor in self._actors().values()}
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
                        if call.actor is not None and actor_id(call.actor) == key:
                            call.beat()
                known.pulse = pulse

    def _handle_stall(self, call: InFlightCall, seconds: float) -> None:
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
