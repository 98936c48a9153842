"""What a live run does now: its actors and the numbers of its metrics, asked of its Ray.

    live = look_at_run("tiny-poly_epo-s0-1a2b3c4d", lease)
    live.why_not or live.numbers["calls/score"]

A process of its own asks (RAY_ADDRESS=... python -m workflows.doctor.live_run RUN), so that a cluster that hangs holds
up nobody for long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

from raypoly.core.text import duration
from raypoly.run.run_metrics import RUN_METRICS
from raypoly.run.store.lease import LeaseState

SECONDS = 20.0
"""How long the asking process may take; it needs some two to start and to join Ray."""
_UNKNOWN = "What it does now is not known"


@dataclass(frozen=True)
class LiveRun:
    """What was found of a live run."""

    actors: Sequence[str] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Those of `RUN_METRICS` whose source is `now`, by the names of `workflows.observers.live_numbers`. Empty in a
    run's first seconds."""
    why_not: str = ""
    """Why nothing was found, in one sentence."""

    @property
    def sentences(self) -> Iterator[str]:
        """It for a person."""
        if self.why_not:
            yield self.why_not
            return
        if self.numbers:
            yield f"It does now: {', '.join(self._parts())}."
        yield f"Its actors: {', '.join(self.actors)}."

    def _parts(self) -> Iterator[str]:
        known = defaultdict(float, self.numbers)
        if known["paused"]:
            yield "waits for the judge"
        calls = {name: count for name, count in sorted(known.items()) if name.startswith("calls/") and count}
        told = (f"{name.removeprefix('calls/')} {count:g}" for name, count in calls.items())
        yield f"calls in flight {' '.join(told) or 'none'}"
        scorers = (f"{known[f'scorers/{state}']:g} {state}" for state in ("busy", "idle", "starting"))
        yield f"{known['programs_waiting']:g} programs wait for scorers ({', '.join(scorers)})"
        yield f"{known['retries_left']:g} retries left"
        yield f"last commit {duration(known['commit_age_seconds'])} ago"


def look_at_run(run: str, lease: LeaseState) -> LiveRun:
    """Ask the Ray that the driver of a run has started, else the cluster of RAY_ADDRESS. Takes seconds at most."""
    from workflows.startup.ray_cluster import own_address  # imports Ray, which a run that has ended does not need

    own = own_address(lease.pid) if lease.pid is not None else ""
    address = own or os.environ.get("RAY_ADDRESS", "")
    if not address:
        return LiveRun(why_not=f"{_UNKNOWN} here: set RAY_ADDRESS to its cluster.")
    environment = os.environ | {"RAY_ADDRESS": address} | ({"RAY_AUTH_MODE": "token"} if own else {})
    command = [sys.executable, "-m", "workflows.doctor.live_run", run]
    try:
        asked = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=True)
        return LiveRun(**json.loads(asked.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return LiveRun(why_not=f"{_UNKNOWN}: the Ray at {address} gave no answer in {SECONDS:g} s.")
    except (subprocess.CalledProcessError, ValueError, IndexError):
        return LiveRun(why_not=f"{_UNKNOWN}: the Ray at {address} could not be asked.")


def _ask(run: str) -> LiveRun:
    """What the cluster of RAY_ADDRESS knows of the run."""
    import ray

    from raypoly.core.config import Config
    from raypoly.core.errors import RaypolyError
    from workflows.startup.ray_cluster import connect_ray, why_closed

    address = os.environ["RAY_ADDRESS"]
    if closed := why_closed(address):
        return LiveRun(why_not=f"{_UNKNOWN}: nothing answers at RAY_ADDRESS={address} ({closed}).")
    try:
        with connect_ray(Config(), run):
            actors = sorted(ray.util.list_named_actors())
            nodes = [node for node in ray.nodes() if node["Alive"]]
    except RaypolyError as error:
        return LiveRun(why_not=f"{_UNKNOWN}: {error}")
    if not actors:
        return LiveRun(why_not=f"{_UNKNOWN}: the Ray at {address} has no actor of it.")
    places = [f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}" for node in nodes]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda place: _numbers(run, place), places))
    return LiveRun(actors, {name: value for numbers in found for name, value in numbers.items()})


def _numbers(run: str, place: str) -> dict[str, float]:
    """The run's numbers that a node serves; only that of its driver has any. None if the node does not answer."""
    from workflows.observers.served_metrics import served_points

    try:
        samples = [each for each in served_points(place) if each.labels.get("run") == run]
    except OSError:
        return {}
    return {
        metric.number + sample.labels[metric.label] if metric.label else metric.name: sample.value
        for metric in RUN_METRICS
        for sample in samples
        if metric.source == "now" and sample.name == metric.served
    }


if __name__ == "__main__":
    print(json.dumps(asdict(_ask(sys.argv[1]))))
