"""Whoever looks learns who holds a run, without holding or disturbing it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from raypoly.run.store import Store, acquire_lease
from raypoly.run.store.location import Location
from raypoly.run.store.open_store import newest_epoch, probe_lease
from tests.raypoly.run.store.conftest import Open

HOLD = """
import sys
from raypoly.run.store import acquire_lease, open_store
lease = acquire_lease(open_store(sys.argv[1]), "a driver")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["local", "s3"])
def reopen(request: pytest.FixtureRequest) -> Open:
    opened: Open = request.getfixturevalue(f"open_{request.param}")
    return opened


def test_nobody_holds_a_run_that_never_started(store: Store) -> None:
    assert probe_lease(store) is None
    assert newest_epoch(store) is None


def test_living_holder_is_named_until_it_gives_the_lease_back(store: Store, reopen: Open) -> None:
    lease = acquire_lease(store, "a driver")
    held = probe_lease(reopen())
    assert held is not None
    assert (held.epoch, held.lives) == (1, True)
    assert f"pid {os.getpid()}" in held.summary
    assert "a driver" in held.summary
    lease.check()
    lease.release()
    free = probe_lease(reopen())
    assert free is not None
    assert (free.epoch, free.lives) == (1, False)
    assert acquire_lease(reopen(), "the next").epoch == 2
    assert newest_epoch(reopen()) == 2


def test_killed_holder_is_known_to_be_gone(store: Store, reopen: Open) -> None:
    place: Location = store.location
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()
    found = probe_lease(reopen())
    assert found is not None
    assert found.lives is False
    assert "has ended" in found.summary
