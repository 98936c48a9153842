"""Clusters of simulated machines, each in a process of its own, that take runs as they come.

    with Fleet(3, "local", folder) as fleet:
        outcome = fleet.run(Task(number=1, engine="vllm", overrides=[...], plan=[...], undisturbed=0)).result()

A run waits much of its time: for Ray to take a node for dead, for an engine that starts. So several fill two cores.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.chaos.disturbed import Disturbed, Outcome
from tests.support.driver_process import Driver
from tests.support.kill_plan import Kill
from tests.support.ray_machines import Machines


@dataclass(frozen=True)
class Task:
    """One run."""

    number: int
    engine: str
    overrides: Sequence[str]
    plan: Sequence[Kill] = ()
    undisturbed: int | None = None
    """The run that it is compared with."""


class Fleet:
    """Up inside `with`."""

    def __init__(self, size: int, store: str, folder: Path, **machines: int) -> None:
        """`store`: `local`, or `s3`, which one cluster alone can reach; `folder`: of runs and logs.

        `machines`: arguments of `Machines`.
        """
        self.size = size
        self._pool = ProcessPoolExecutor(size, multiprocessing.get_context("spawn"), _up, (store, folder, machines))

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def run(self, task: Task) -> Future[Outcome]:
        """Without waiting; at most `size` run at once."""
        return self._pool.submit(_run, task)

    def why_no_partition(self) -> str:
        """Empty where nodes have networks that can be cut."""
        return self._pool.submit(_why_no_partition).result()


@dataclass
class _Here:
    """What this process of the fleet has."""

    machines: Machines
    folder: Path
    prefix: str

    def place(self, number: int) -> str:
        path, mark, options = self.prefix.partition("?")
        return f"{path}/run-{number}{mark}{options}"


_here: list[_Here] = []


def _up(store: str, folder: Path, options: Mapping[str, int]) -> None:
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    if store == "s3":
        _allow_s3()  # before the nodes start, for their actors write to it as well
    machines = stack.enter_context(Machines(**options))
    prefix = stack.enter_context(_s3(machines.here)) if store == "s3" else str(folder)
    _here.append(_Here(machines, folder, prefix))


def _run(task: Task) -> Outcome:
    here = _here[0]
    log = here.folder / f"run-{task.number}.log"
    driver = Driver(here.place(task.number), log, task.overrides, {"RAY_ADDRESS": here.machines.address})
    undisturbed = None if task.undisturbed is None else here.place(task.undisturbed)
    return Disturbed(task.number, task.engine, driver, here.machines).run(task.plan, undisturbed)


def _why_no_partition() -> str:
    return _here[0].machines.why_no_partition


def _allow_s3() -> None:
    """Credentials for this process and all that it starts."""
    from tests.support.s3_server import S3Server  # needs moto, which only tests do otherwise

    os.environ.update(S3Server("").environment)


@contextlib.contextmanager
def _s3(host: str) -> Iterator[str]:
    """The URI of a bucket on a server of this process."""
    from tests.support.s3_server import s3_server

    with s3_server(host) as server:
        yield server.uri("chaos")
