"""One driver at a time, on a local disk and on S3: whoever is second is told who is first, and a dead holder holds
nothing. Whoever looks learns who holds a run, without holding or disturbing it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from raypoly.core.errors import LeaseHeld, StaleEpoch
from raypoly.run.store import Store, acquire_lease, newest_epoch, open_store, probe_lease
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.location import StorageOptions
from tests.raypoly.run.store.conftest import Open, race
from tests.support.s3_server import S3Server

HOLD = """
    import sys
    from raypoly.run.store import acquire_lease, open_store
    from raypoly.run.store.location import StorageOptions
    lease = acquire_lease(open_store(sys.argv[1], StorageOptions(timeout=3.0)), "raypoly train")
    print(lease.epoch, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["local", "s3"])
def reopen(request: pytest.FixtureRequest) -> Open:
    opened: Open = request.getfixturevalue(f"open_{request.param}")
    return opened


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "run")


def start(script: str, store: Store) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), store.uri]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_nobody_holds_a_run_that_never_started(store: Store) -> None:
    assert probe_lease(store) is None
    assert newest_epoch(store) is None


def test_living_holder_is_named_to_whoever_starts_or_looks(store: Store, reopen: Open) -> None:
    holder = start(HOLD, store)
    assert first_line(holder) == "1"
    held = probe_lease(reopen())
    assert held is not None
    assert (held.epoch, held.lives) == (1, True)
    assert f"held by pid {holder.pid} on" in held.summary
    with pytest.raises(LeaseHeld, match=rf"held by pid {holder.pid} on host \S+ since \S+ \(raypoly train\): wait"):
        acquire_lease(store)
    assert LeaseHeld.exit_code == 2
    holder.kill()
    holder.wait()


def test_killed_holder_is_known_to_be_gone_and_followed_at_once(store: Store, reopen: Open) -> None:
    for epoch in ("1", "2"):
        holder = start(HOLD, store)
        assert first_line(holder) == epoch
        holder.kill()
        holder.wait()
    found = probe_lease(reopen())
    assert found is not None
    assert (found.epoch, found.lives) == (2, False)
    assert "has ended" in found.summary
    assert acquire_lease(store).epoch == 3


def test_lease_given_back_is_free_and_writes_nothing_more(store: Store, reopen: Open) -> None:
    lease = acquire_lease(store, "a driver")
    lease.check()
    lease.release()
    with pytest.raises(StaleEpoch, match="given back"):
        lease.check()
    free = probe_lease(reopen())
    assert free is not None
    assert (free.epoch, free.lives) == (1, False)
    assert f"given back by pid {os.getpid()}" in free.summary
    assert acquire_lease(reopen(), "the next").epoch == 2
    assert newest_epoch(reopen()) == 2


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_of_two_starts_at_the_same_instant_exactly_one_holds_every_time(
    s3: S3Server, tmp_path: Path, kind: str
) -> None:
    for n in range(40):
        place = str(tmp_path / f"run-{n}") if kind == "local" else s3.uri(f"{tmp_path.name}/race-{n}")
        options = StorageOptions(timeout=3.0, scratch=tmp_path / "scratch")
        outcomes = race(lambda place=place, options=options: open_store(place, options), 2)
        assert sorted(outcome == "refused" for outcome in outcomes) == [False, True], (n, outcomes)


def test_child_that_outlives_its_parent_does_not_hold_the_lease(local: LocalStore) -> None:
    forks = "    import os\n" + HOLD.replace("print(lease.epoch, flush=True)", "os.fork(); os.write(1, b'1\\n')")
    holder = start(forks, local)
    assert [first_line(holder), first_line(holder)] == ["1", "1"]
    holder.kill()
    os.waitpid(holder.pid, 0)
    assert acquire_lease(local).epoch == 2
    assert holder.stdin is not None
    holder.stdin.close()  # ends the child


def test_holder_that_was_overtaken_notices(local: LocalStore) -> None:
    lease = acquire_lease(local)
    lease.check()
    local.local_path("lease.lock").unlink()  # as a network file system that forgot its lock
    other = acquire_lease(local, "the other driver")
    other.check()
    with pytest.raises(StaleEpoch, match=r"taken over by pid .*the other driver.*epoch 2, this one is 1"):
        lease.check()


def test_damaged_lease_file_leads_to_an_epoch_beyond_any_other(local: LocalStore) -> None:
    acquire_lease(local).release()
    local.local_path("lease.json").write_bytes(b"{garbage")
    lease = acquire_lease(local)
    assert lease.epoch > 1_000_000
    lease.check()
    assert [damaged.key for damaged in local.damaged] == ["lease.json"]


def test_lost_lease_file_of_a_run_never_leads_back_to_its_first_epoch(local: LocalStore) -> None:
    lease = acquire_lease(local)
    local.commit("config.json", b"{}")
    lease.release()
    local.local_path("lease.json").unlink()
    assert acquire_lease(local).epoch > 1_000_000
