"""The Python stacks of a run's processes, in `<run>/stacks/<time>.txt`.

An actor reports its own stacks. If C code holds its interpreter, a signal is sent to it, on any node.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.watched import Pulse, all_stacks, signalled_stacks
from raypoly.core.errors import RaypolyError
from raypoly.run.store import Store
from workflows.liveness.ray_internals import actor_id

_ANSWER_SECONDS = 5.0
_SIGNAL_SECONDS = 20.0
"""Longer, since a task has to start on another node first."""
_WRITE_SECONDS = 10.0


class Stacks:
    """Writes stacks from a thread beside the event loop, which may hang."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, headline: str, actors: Mapping[str, Any], pulses: Mapping[str, Pulse | None]) -> str:
        """Write all stacks and return the file's place. `pulses`: the last known of each actor, by its id."""
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
        """Saves in the run, or on this machine's disk if the run's storage hangs. Returns the place."""
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
        with tempfile.NamedTemporaryFile(prefix="raypoly-stacks-", suffix=".txt", delete=False) as file:
            file.write(data)
        return str(Path(file.name))


def _ask_actor(answer: Any) -> str:
    """The actor's own report; empty if it did not answer."""
    try:
        stacks: str = ray.get(answer, timeout=0.1)
    except RayError:  # no answer, or it is gone
        return ""
    return stacks


def _signal_actor(pulse: Pulse | None) -> str:
    """The stacks that the actor's process writes when it gets a signal, or why there are none."""
    if pulse is None:
        return "(it never answered)\n"
    there = NodeAffinitySchedulingStrategy(pulse.node, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0)(signalled_stacks).options(scheduling_strategy=there)
    try:
        found: str = ray.get(task.remote(pulse.pid, pulse.descriptor), timeout=_SIGNAL_SECONDS)
    except RayError as error:
        return f"(it does not answer, and its node neither: {type(error).__name__})\n"
    return found or "(it does not answer, not even to a signal: the process is stopped)\n"
