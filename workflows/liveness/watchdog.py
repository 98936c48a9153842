"""The watchdog: finds a stage without progress, saves all stacks in the run's folder, and restarts its actor once.

    with Watchdog(seconds, calls, actors, Stacks(store), progress.note, failed=shutdown.request, paused=...):
        ...

Progress is what an actor's pulse shows (tokens, programs, answers), and each answer that arrives. A call without
progress for `seconds` is stalled: the Python stacks of all actors and of the driver are written to
`<run>/stacks/<time>.txt`, and the actor is killed, upon which its caller replaces it and asks again. The run ends if
the same actor stalls again, or if no actor is the cause (the storage, the driver's own code).
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.calls import START, InFlightCall, InFlightCalls
from actors.judge import PROBE
from actors.ray_internals import actor_id
from actors.watched import Pulse, all_stacks, signalled_stacks
from raypoly.core.errors import RaypolyError, Stalled
from raypoly.run.store import Store

_START_SECONDS = 900.0  # for an actor to start, during which it has no pulse
_LONGEST_INTERVAL = 15.0
_ANSWER_SECONDS = 5.0
_SIGNAL_SECONDS = 20.0  # A task has to start on another node first
_WRITE_SECONDS = 10.0
DRIVER, STORAGE = "the driver", "the storage"


class Stacks:
    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, headline: str, actors: Mapping[str, Any], pulses: Mapping[str, Pulse | None]) -> str:
        """Write all stacks; returns the file's place. `pulses`: each actor's last, by its id."""
        parts = [headline, f"=== the driver\n{all_stacks()}"]
        asked = {name: actor.stacks.remote() for name, actor in actors.items()}
        if asked:
            ray.wait(list(asked.values()), num_returns=len(asked), timeout=_ANSWER_SECONDS)
        for name, answer in asked.items():
            pulse = pulses.get(actor_id(actors[name]))
            pid = "" if pulse is None else f" (pid {pulse.pid} on node {pulse.node[:12]})"
            parts.append(f"=== {name}{pid}\n{_ask_actor(answer) or _signal_actor(pulse)}")
        return self._save("\n\n".join(parts).encode())

    def _save(self, data: bytes) -> str:
        key = f"stacks/{datetime.now(UTC):%Y%m%dT%H%M%S}.txt"
        written = threading.Event()

        def put() -> None:
            try:
                self._store.put_mutable(key, data)
            except RaypolyError:
                return
            written.set()

        threading.Thread(target=put, daemon=True).start()
        if written.wait(_WRITE_SECONDS):
            return self._store.place(key)
        # the run's storage may be what hangs: then this machine's own disk has them
        with tempfile.NamedTemporaryFile(prefix="raypoly-stacks-", suffix=".txt", delete=False) as file:
            file.write(data)
        return str(Path(file.name))


def _ask_actor(answer: Any) -> str:
    try:
        stacks: str = ray.get(answer, timeout=0.1)
    except RayError:  # no answer, or it is gone
        return ""
    return stacks


def _signal_actor(pulse: Pulse | None) -> str:
    # A signal works while C code holds the actor's interpreter.
    if pulse is None:
        return "(it never answered)\n"
    there = NodeAffinitySchedulingStrategy(pulse.node, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0)(signalled_stacks).options(scheduling_strategy=there)
    try:
        found: str = ray.get(task.remote(pulse.pid, pulse.descriptor), timeout=_SIGNAL_SECONDS)
    except RayError as error:
        return f"(it does not answer, and its node neither: {type(error).__name__})\n"
    return found or "(it does not answer, not even to a signal: the process is stopped)\n"


@dataclass
class _Known:
    actor: Any
    pulse: Pulse | None = None
    asked: Any = None


class Watchdog:
    """A thread inside `with`, which has to be entered in the driver's event loop."""

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
        """Count the next stall of an actor as its first: the restart has helped."""
        self._struck.clear()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._over.wait(self._every):
            now = time.monotonic()
            if now - last > self._every + self._seconds / 4:
                # this process itself was stopped (a laptop's lid, SIGSTOP): nothing had a chance to show progress
                for call in [*self._calls.open, self._driver]:
                    call.beat()
            last = now
            try:
                self._loop.call_soon_threadsafe(self._driver.beat)  # late where the driver's own code hangs
                self._find_stall()
            except (RayError, RuntimeError, ValueError, OSError) as error:  # Ray or the loop is about to end
                if self._over.is_set():
                    return
                self._note(f"The watchdog could not look: {type(error).__name__}: {error}")

    def _find_stall(self) -> None:
        self._read_pulses()
        if self._paused():
            # what waits for the judge is not stalled; the probe that asks whether it is back may be
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
        # Without waiting: an actor may never answer.
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
        # the killed actor's other calls wait for its replacement: their time begins anew
        for other in self._calls.open:
            if other.actor is call.actor or other.who == call.who:
                other.beat()
