"""A driver stopped or failed at any request to its S3 server loses nothing that it was promised.

The driver is a process of its own. How many requests an undisturbed run sends is counted; then it is repeated, struck
at one of them: every one with `RAYPOLY_REQUESTS=all`, else every twentieth, each way at others.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import pytest

from raypoly.core.errors import StorageError, UsageError
from tests.support.immediate_exit import exit_now
from tests.support.s3_server import Fault, Request, S3Server, s3_server
from tests.workflows.durability import storage_traffic

How = Literal["killed, request lost", "killed, request done", "request lost", "answer lost", "storage gone"]
WAYS: tuple[How, ...] = ("killed, request lost", "killed, request done", "request lost", "answer lost", "storage gone")
STRIDE = 1 if os.environ.get("RAYPOLY_REQUESTS") == "all" else 20
GONE = 75
"""Exit code of a driver that says that its storage failed."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


def drive(place: str, environment: Mapping[str, str], promises: str) -> None:
    """A driver process: from wherever the run stands to its end; what was promised goes to a file as it is promised."""
    os.environ.update(environment)
    with open(promises, "ab", buffering=0) as file:
        try:
            store, lease = storage_traffic.take_up(place)
            try:
                asyncio.run(storage_traffic.drive(store, lease, lambda text: file.write(f"{text}\n".encode())))
            finally:
                lease.release()
        except (StorageError, UsageError) as error:
            file.write(f"! {error}\n".encode())
            exit_now(GONE)


@dataclass
class Case:
    """One run, struck at one request."""

    server: S3Server
    folder: Path
    name: str
    at: int = 0
    """The request that is struck, from 1; 0: none."""
    how: How = "request lost"
    count: int = 0
    """Requests of its driver so far."""
    driver: BaseProcess | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def place(self) -> str:
        return self.server.uri(self.name)

    def start(self) -> int:
        """Run the driver to its end, whatever that is; its exit code."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.driver = context.Process(target=drive, args=(self.place, self.server.environment, str(self.promises_file)))
        with self.lock:
            self.driver.start()
        self.driver.join()
        self.server.end_faults()
        assert self.driver.exitcode is not None
        return self.driver.exitcode

    def arm(self) -> None:
        """Strike this case's `at`-th request."""
        if self.how != "killed, request done":
            gone = self.how == "storage gone"
            kind: Literal["denied", "cut"] = "denied" if gone else "cut"
            fault = Fault(kind, self.at, -1 if gone else 1, self.how == "answer lost", self.is_ours)
            self.server.faults.append(fault)
        self.server.on_request = self.count_and_kill

    def is_ours(self, request: Request) -> bool:
        return f"{self.name}/" in f"{request.key}/?{unquote(request.query)}/"

    def count_and_kill(self, request: Request) -> None:
        if not self.is_ours(request):
            return
        self.count += 1
        if self.count == self.at and self.how.startswith("killed"):
            with self.lock:  # it is there by now
                assert self.driver is not None
                assert self.driver.pid is not None
                os.kill(self.driver.pid, signal.SIGKILL)

    @property
    def promises_file(self) -> Path:
        return self.folder / f"{self.name}.txt"

    @property
    def promises(self) -> list[str]:
        return self.promises_file.read_text().splitlines() if self.promises_file.exists() else []


@pytest.fixture(scope="module")
def requests(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many requests an undisturbed run sends."""
    case = Case(server, tmp_path_factory.mktemp("undisturbed"), "undisturbed")
    case.arm()
    assert case.start() == 0, case.promises
    return case.count


@pytest.mark.parametrize("how", WAYS)
def test_run_resumes_whichever_request_it_was_stopped_at(
    server: S3Server, requests: int, tmp_path: Path, how: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    assert requests > 40
    struck = 0
    for at in range(1 + WAYS.index(how) * STRIDE // len(WAYS), requests + 1, STRIDE):
        case = Case(server, tmp_path, f"{WAYS.index(how)}-{at}", at, how)
        case.arm()
        code = case.start()
        if how.startswith("killed"):
            assert code == -signal.SIGKILL
        elif how == "storage gone":
            assert code == GONE or case.promises[-1] == "evaluated", "only the release of the lease may fail unsaid"
        else:
            assert code == 0, f"{how} at request {at}: {case.promises}"
        check(case)
        struck += 1
    assert struck >= 3


def check(case: Case) -> None:
    promises = [line for line in case.promises if not line.startswith("!")]
    store, lease = storage_traffic.take_up(case.place)
    try:
        storage_traffic.check_promises(store, lease, promises)
        asyncio.run(storage_traffic.drive(store, lease, promises.append))
        storage_traffic.check_end(store, lease)
    finally:
        lease.release()
