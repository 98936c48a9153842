"""One driver at a time on remote storage, too: whatever stalls or comes back, nobody writes after a take-over."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raypoly.core.errors import StaleEpoch, StorageError
from raypoly.run.store import Store, acquire_lease, open_store
from raypoly.run.store.location import Location, StorageOptions
from tests.support.s3_server import Fault, Request, S3Server

TIMEOUT = 3.0
"""Seconds for a request; a holder that is silent for twice as long may be replaced."""
HOLD = f"""
    import sys
    from raypoly.run.store import acquire_lease, open_store
    from raypoly.run.store.location import StorageOptions
    store = open_store(sys.argv[1], StorageOptions(timeout={TIMEOUT}, patience=5.0))
    lease = acquire_lease(store, "raypoly train")
    print(lease.epoch, flush=True)
    n = 0
    for line in sys.stdin:  # a commit for each line
        try:
            n += 1
            store.commit(f"epoch-{{lease.epoch}}/{{n:06d}}", b"x")
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        else:
            print("committed", flush=True)
"""


@pytest.fixture
def options(tmp_path: Path) -> StorageOptions:
    return StorageOptions(timeout=TIMEOUT, patience=20.0, scratch=tmp_path / "scratch")


@pytest.fixture
def reopen(open_s3: Callable[[], Store]) -> Callable[[], Store]:
    return open_s3


@pytest.fixture
def start(s3_location: Location) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts holders in processes of their own."""
    started: list[subprocess.Popen[str]] = []

    def started_one() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(HOLD), str(s3_location)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield started_one
    for process in started:
        process.kill()
        process.wait()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def commit_in(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return line_of(process)


def test_dead_holder_of_this_machine_is_followed_at_once(
    s3: S3Server, start: Callable[[], subprocess.Popen[str]], store: Store
) -> None:
    holder = start()
    assert line_of(holder) == "1"
    holder.kill()
    holder.wait()
    s3.requests.clear()
    lease = acquire_lease(store)
    assert lease.epoch == 2
    assert s3.count("GET", "beat-000001") <= 1  # no waiting for signs of life
    lease.release()


def test_check_costs_no_request_while_the_heartbeat_is_fresh(s3: S3Server, store: Store) -> None:
    lease = acquire_lease(store)
    s3.requests.clear()
    for _ in range(1000):
        lease.check()
    assert len([request for request in s3.requests if "lease/" not in request.key]) == 0
    assert len(s3.requests) < 100  # the heartbeat's own
    lease.release()


def test_paused_holder_is_replaced_and_writes_nothing_when_it_comes_back(
    start: Callable[[], subprocess.Popen[str]], store: Store
) -> None:
    holder = start()
    assert line_of(holder) == "1"
    assert commit_in(holder) == "committed"
    holder.send_signal(signal.SIGSTOP)
    lease = acquire_lease(store, "the other head")
    assert lease.epoch == 2
    holder.send_signal(signal.SIGCONT)
    answer = commit_in(holder)
    assert answer.startswith("StaleEpoch")
    assert "was taken over by pid" in answer
    assert "(the other head) (epoch 2, this one is 1)" in answer
    assert store.list("epoch-1/") == ("epoch-1/000001",)
    store.commit("mine", b"")
    lease.release()


def test_holder_that_is_cut_off_stops_writing_before_another_may_begin(
    s3: S3Server, s3_location: Location, tmp_path: Path, store: Store
) -> None:
    cut_off = open_store(s3_location, StorageOptions(TIMEOUT, 0.5, tmp_path))
    acquire_lease(cut_off)
    cut_off.commit("a", b"")

    def of_the_holder(request: Request) -> bool:
        writes_beat = request.method == "PUT" and "beat-000001" in request.key
        return writes_beat or (request.method == "HEAD" and "epoch-000002" in request.key)

    s3.faults.append(Fault("cut", times=-1, where=of_the_holder))
    came_to_an_end: list[str] = []

    def write_on() -> None:
        for n in range(1_000_000):
            try:
                cut_off.commit(f"n/{n}", b"")
            except StorageError as error:
                came_to_an_end.append(str(error))
                return

    writer = threading.Thread(target=write_on)
    writer.start()
    lease = acquire_lease(store)
    written = store.list("n/")
    assert lease.epoch == 2
    writer.join()
    assert "the connection" in came_to_an_end[0]
    s3.faults.clear()
    with pytest.raises(StaleEpoch, match="was taken over"):
        cut_off.commit("late", b"")
    assert store.list("n/") == written != ()
    of_others = [request.key for request in s3.requests if request.method == "PUT" and "beat-000001" not in request.key]
    taken_over = next(n for n, key in enumerate(of_others) if "lease/epoch-000002" in key)
    assert not [key for key in of_others[taken_over:] if "/n/" in key]  # not even sent
    lease.release()


def test_holder_that_comes_back_at_the_last_instant_is_waited_for(
    s3: S3Server, s3_location: Location, tmp_path: Path, store: Store
) -> None:
    late = open_store(s3_location, StorageOptions(TIMEOUT, 20.0, tmp_path))
    held = acquire_lease(late)
    s3.faults.append(Fault("cut", times=-1, where=lambda r: r.method == "PUT" and "beat-000001" in r.key))
    came_back: list[float] = []

    def comes_back(request: Request) -> None:
        if request.method == "PUT" and "epoch-000002" in request.key and not came_back:
            s3.faults.clear()
            came_back.append(time.monotonic())
            held.check()  # allowed: the new epoch is not there yet

    s3.on_request = comes_back
    lease = acquire_lease(store)
    assert came_back
    assert time.monotonic() - came_back[0] > TIMEOUT  # what `check` allowed is over
    with pytest.raises(StaleEpoch, match="was taken over"):
        late.commit("late", b"")
    lease.release()


def test_storage_that_is_away_for_a_moment_costs_nobody_the_lease(s3: S3Server, store: Store) -> None:
    lease = acquire_lease(store)
    s3.faults.append(Fault("slow_down", times=30, where=lambda request: request.method == "PUT"))
    for n in range(5):
        store.commit(f"n/{n}", b"")
    lease.check()
    lease.release()


@pytest.mark.parametrize("conditions", ["ignored", "unknown"])
def test_storage_without_conditional_writes_is_refused(s3: S3Server, store: Store, conditions: str) -> None:
    s3.conditions = conditions
    with pytest.raises(StorageError, match=r"the server has no conditional writes .*; use storage that has them"):
        acquire_lease(store)


def test_deleted_lease_never_leads_back_to_an_earlier_epoch(store: Store) -> None:
    lease = acquire_lease(store)
    store.commit("starts/epoch-000001.json", b"{}")
    lease.release()
    store.fence = lambda: None
    for key in store.list("lease/"):
        store.delete(key)
    again = acquire_lease(store)
    assert again.epoch == 2
    again.release()
