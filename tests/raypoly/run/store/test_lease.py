"""One driver at a time: whoever is second is told who is first, and a dead holder holds nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from raypoly.core.errors import LeaseHeld, StaleEpoch
from raypoly.run.store import Store, acquire_lease, open_store

HOLD = """
    import sys
    from raypoly.run.store import acquire_lease, open_store
    lease = acquire_lease(open_store(sys.argv[1]), "raypoly train")
    print(lease.epoch, flush=True)
    sys.stdin.read()
"""
RACE = """
    import os, sys
    from raypoly.core.errors import LeaseHeld
    from raypoly.run.store import acquire_lease, open_store
    gates = os.pipe(), os.pipe()  # a gate opens to all children at once, when the parent closes its end
    for _ in range(100):
        if not os.fork():
            for _, end in gates:
                os.close(end)
            os.read(gates[0][0], 1)
            try:
                lease = acquire_lease(open_store(sys.argv[1]), "racer")
            except LeaseHeld as error:
                os.write(1, f"refused {error}\\n".encode())
            else:
                os.write(1, f"holds {os.getpid()}\\n".encode())
                os.read(gates[1][0], 1)
            os._exit(0)
    os.close(gates[0][1])
    for _ in range(99):
        os.wait()
    os.close(gates[1][1])
    os.wait()
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "run")


def start(script: str, store: Store) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), store.uri]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_second_start_is_refused_with_the_holders_name(store: Store) -> None:
    holder = start(HOLD, store)
    assert first_line(holder) == "1"
    with pytest.raises(LeaseHeld, match=rf"held by pid {holder.pid} on host \S+ since \S+ \(raypoly train\): wait"):
        acquire_lease(store)
    assert LeaseHeld.exit_code == 2
    holder.kill()
    holder.wait()


def test_killed_holder_holds_nothing_and_the_next_epoch_is_one_later(store: Store) -> None:
    for epoch in ("1", "2"):
        holder = start(HOLD, store)
        assert first_line(holder) == epoch
        holder.kill()
        holder.wait()
    assert acquire_lease(store).epoch == 3


def test_child_that_outlives_its_parent_does_not_hold_the_lease(store: Store) -> None:
    forks = "    import os\n" + HOLD.replace("print(lease.epoch, flush=True)", "os.fork(); os.write(1, b'1\\n')")
    holder = start(forks, store)
    assert [first_line(holder), first_line(holder)] == ["1", "1"]
    holder.kill()
    os.waitpid(holder.pid, 0)
    assert acquire_lease(store).epoch == 2
    assert holder.stdin is not None
    holder.stdin.close()  # ends the child


def test_of_a_hundred_starts_at_once_exactly_one_holds(store: Store) -> None:
    output, _ = start(RACE, store).communicate(timeout=300)
    lines = output.splitlines()
    holders = [line.split()[1] for line in lines if line.startswith("holds")]
    assert len(lines) == 100
    assert len(holders) == 1
    assert all(f"held by pid {holders[0]} on host" in line for line in lines if line.startswith("refused"))
    assert json.loads(store.read("lease.json"))["epoch"] == 1


def test_holder_that_was_overtaken_notices(store: Store) -> None:
    lease = acquire_lease(store)
    lease.check()
    store.local_path("lease.lock").unlink()  # as a network file system that forgot its lock
    other = acquire_lease(store, "the other driver")
    other.check()
    with pytest.raises(StaleEpoch, match=r"taken over by pid .*the other driver.*epoch 2, this one is 1"):
        lease.check()


def test_lease_given_back_writes_nothing_more(store: Store) -> None:
    lease = acquire_lease(store)
    lease.release()
    with pytest.raises(StaleEpoch):
        lease.check()
    assert acquire_lease(store).epoch == 2


def test_damaged_lease_file_leads_to_an_epoch_beyond_any_other(store: Store) -> None:
    acquire_lease(store).release()
    store.put_mutable("lease.json", b"{garbage")
    lease = acquire_lease(store)
    assert lease.epoch > 1_000_000
    lease.check()
    assert [damaged.key for damaged in store.damaged] == ["lease.json"]


def test_lost_lease_file_of_a_run_never_leads_back_to_its_first_epoch(store: Store) -> None:
    acquire_lease(store).release()
    store.commit("config.json", b"{}")
    store.local_path("lease.json").unlink()
    assert acquire_lease(store).epoch > 1_000_000
