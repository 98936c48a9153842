"""What a start reads of a run folder before anything trains, timed in a process of its own.

python -m benchmarks.journals.opening FOLDER STEPS       # one JSON object
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.journals.made import CHECKPOINT_EVERY, config_of
from raypoly.run.run_identity import resolve_run
from raypoly.run.sinks import MetricsFile
from raypoly.run.store.local_store import LocalStore
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.journal import Journal
from workflows.observers.summary import Summary


@dataclass
class Stages:
    """Seconds of each part of a start, by the clock and of CPU."""

    wall: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        started, busy = time.perf_counter(), time.process_time()
        yield
        self.wall[name], self.cpu[name] = time.perf_counter() - started, time.process_time() - busy


class CountingStore(LocalStore):
    """Counts what would be requests to an object store; a listing is one for each 1,000 keys."""

    requests: Counter[str]

    def read(self, key: str) -> bytes:
        self.requests["read"] += 1
        return super().read(key)

    def list(self, prefix: str = "") -> tuple[str, ...]:
        found = super().list(prefix)
        self.requests["list"] += 1 + len(found) // 1000
        return found


def open_run(folder: Path, steps: int) -> dict[str, object]:
    """As `workflows.startup.open_run.open_run` does, without the actors."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stages = Stages()
    config = config_of(folder, 2 * steps)
    with stages.timed("resolve and lease"):
        _, lease = resolve_run(config).open("benchmark")
    store = CountingStore(folder)
    store.requests = Counter()
    with stages.timed("journal"):
        journal = Journal(store)
    with stages.timed("newest checkpoint"):
        checkpoint = Checkpoints(store, lease).newest_valid()
    with stages.timed("rows to the sinks"):
        summary, metrics = Summary(store, journal, config), MetricsFile(folder / "metrics.jsonl")
        for step in range(steps):
            applied = journal.applied(step)
            assert applied is not None
            summary.add(applied.metrics)
            metrics.log(applied.metrics)
    with stages.timed("summary.json"):
        summary.write("running")
    lease.release()
    assert checkpoint is not None
    assert checkpoint.step == steps - steps % CHECKPOINT_EVERY
    assert len(journal.completed_steps()) == steps
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    requests = {f"{name}s": count for name, count in store.requests.items()}
    return {"wall": stages.wall, "cpu": stages.cpu, "grown_mib": round(grown / 1024), "requests": requests}


if __name__ == "__main__":
    print(json.dumps(open_run(Path(sys.argv[1]), int(sys.argv[2]))))
