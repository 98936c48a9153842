"""Stores of every kind, for the promises that all of them keep."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from raypoly.core.errors import LeaseHeld
from raypoly.run.store import Store, acquire_lease, open_store
from raypoly.run.store.location import Location, StorageOptions
from tests.support.s3_server import S3Server

Open = Callable[[], Store]
"""Opens the same place anew, as another process would."""


@pytest.fixture
def options(tmp_path: Path) -> StorageOptions:
    return StorageOptions(timeout=10.0, patience=30.0, scratch=tmp_path / "scratch")


@pytest.fixture
def s3_location(s3: S3Server, tmp_path: Path) -> Location:
    return Location.parse(s3.uri(f"{tmp_path.parent.name}/{tmp_path.name}/run"))


@pytest.fixture
def open_s3(s3_location: Location, options: StorageOptions) -> Open:
    return lambda: open_store(s3_location, options)


@pytest.fixture
def open_local(tmp_path: Path) -> Open:
    return lambda: open_store(tmp_path / "run")


@pytest.fixture(params=["local", "s3"])
def reopen(request: pytest.FixtureRequest) -> Open:
    opened: Open = request.getfixturevalue(f"open_{request.param}")
    return opened


@pytest.fixture
def store(reopen: Open) -> Store:
    return reopen()


def race(reopen: Callable[[], Store], drivers: int) -> list[str]:
    """What became of so many drivers that start at once: `refused`, or an epoch. Each holds until all have ended."""
    gate, outcomes = threading.Barrier(drivers), []
    leases = []

    def drive() -> None:
        store = reopen()
        gate.wait()
        try:
            leases.append(acquire_lease(store, "racer"))
        except LeaseHeld:
            outcomes.append("refused")
        else:
            outcomes.append(f"epoch {leases[-1].epoch}")

    threads = [threading.Thread(target=drive) for _ in range(drivers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lease in leases:
        lease.release()
    return outcomes
