"""The page of a run that goes on, for browsers of this machine: `raypoly watch`.

    GET /             the run's page
    GET /charts.json  {"said", "facts", "page", "numbers"}, with an ETag; `page` changes with what is not a chart

Reads the run's files as `raypoly report` does, and writes none.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from raypoly.analysis.reports.metric_charts import run_charts
from raypoly.analysis.reports.run_page import run_html, told_facts
from raypoly.core.errors import RaypolyError
from raypoly.core.http_handler import QuietHandler
from raypoly.core.text import visible
from raypoly.run.run_files import EVALUATIONS, SUMMARY, RunFiles
from raypoly.run.sinks import METRICS

_LOOPBACK = ("127.0.0.1", "localhost")
_EVERY, _EVERY_REMOTE = 1.0, 15.0  # seconds between two reads, however many browsers ask
_SHARE = 20  # reading takes at most 1/20 of a processor: the run has use for it
_REST = ("state", "evaluations", "pauses", "set_aside", "damaged", "missing_rollouts")  # of summary.json, on the page


class LiveRun:
    """A run's page and numbers, as new as its files. Thread-safe."""

    def __init__(self, place: str | Path) -> None:
        """Raises `UsageError` where no run is there."""
        folder = RunFiles(place).store.location.folder
        self._place, self._every = place, _EVERY if folder is not None else _EVERY_REMOTE
        self._lock = threading.Lock()
        self._next, self._read = 0.0, [b""]
        self._answer: dict[str, Any] = {}

    def numbers(self) -> bytes:
        """The answer to /charts.json. Where the files can't be read `said` tells why, and `numbers` are left out."""
        with self._lock:
            if time.monotonic() >= self._next:
                begin = time.thread_time()
                try:
                    self._refresh(RunFiles(self._place))
                except (RaypolyError, ValueError) as error:
                    self._answer, self._read = {"said": visible(str(error))}, [b""]
                self._next = time.monotonic() + max(self._every, _SHARE * (time.thread_time() - begin))
            return json.dumps(self._answer).encode()

    def page(self) -> bytes:
        """Raises `CorruptData`, `StorageError` and `UsageError`."""
        self.numbers()
        with self._lock:  # one at a time
            return run_html(RunFiles(self._place), live=self._answer.get("page", "unknown")).encode()

    def _refresh(self, run: RunFiles) -> None:
        store = run.store
        read = [store.read(key) if store.exists(key) else b"" for key in (METRICS, SUMMARY)]
        read += [name.encode() for name in store.list(EVALUATIONS)]
        if read == self._read:
            return
        rows, summary = run.rows, run.summary
        newest = f"; its newest step ended at {rows[-1]['time']}" if rows and "time" in rows[-1] else ""
        rest = [{key: summary.get(key) for key in _REST}, store.list(EVALUATIONS)]
        self._answer = {
            "said": visible(f"This page follows the run, which is {summary.get('state', 'running')}{newest}."),
            "facts": visible(told_facts(run)),
            "page": hashlib.sha256(json.dumps(rest).encode()).hexdigest(),
            "numbers": run_charts(run),
        }
        self._read = read


class _Handler(QuietHandler):
    server: WatchServer

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").partition(":")[0]
        if host not in _LOOPBACK:  # a page of elsewhere whose name leads here must not read the run
            self._say(HTTPStatus.MISDIRECTED_REQUEST, f"open {self.server.address}")
        elif self.path == "/charts.json":
            body = self.server.run.numbers()
            tag = f'"{hashlib.sha256(body).hexdigest()}"'
            same = self.headers.get("If-None-Match") == tag
            status = HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK
            self.send_body(status, b"" if same else body, "application/json", {"ETag": tag})
        elif self.path == "/":
            try:
                self.send_body(HTTPStatus.OK, self.server.run.page(), "text/html; charset=utf-8")
            except (RaypolyError, ValueError) as error:
                self._say(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        else:
            self._say(HTTPStatus.NOT_FOUND, "there are / and /charts.json")

    def _say(self, status: HTTPStatus, why: str) -> None:
        self.send_body(status, f"{visible(why)}\n".encode(), "text/plain; charset=utf-8")


class WatchServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, run: LiveRun) -> None:
        """On loopback alone; port 0 takes a free one. Raises `OSError` where it is taken."""
        super().__init__((_LOOPBACK[0], port), _Handler)
        self.run = run

    @property
    def address(self) -> str:
        return f"http://{_LOOPBACK[0]}:{self.server_address[1]}/"
