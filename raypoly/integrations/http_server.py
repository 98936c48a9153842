"""The verifier over HTTP, for a trainer whose environment or interpreter can't hold it: `raypoly serve`.

    POST /v1/verdicts   {"rows": [{"problem_id": "two-sum", "response": "..."}, {"problem": {...}, "code": "..."}]}
    -> 200              {"verdicts": [{"status": "passed", "passed": true, "tests_passed": 3, "tests_total": 3, ...}]}
    -> 400              {"error": "rows[3]: ..."}      nothing was run
    -> 401, 413, 429    no token; too large; the queue is full, and `Retry-After` says for how many seconds
    GET /health, GET /metrics (Prometheus' text)

A status of `infra` is no verdict and no reward of 0: ask again or leave the row out. `http_client.py` is a client.
"""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any

from raypoly.core import __version__
from raypoly.core.caches import LRUCache
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.http_handler import QuietHandler
from raypoly.core.values import STATUSES, Problem, Verdict
from raypoly.data.formats import problem_of, program_of
from raypoly.integrations.in_process import Verifier
from raypoly.verifier.code_extraction import program_in
from raypoly.verifier.score_programs import verdict_fields

LARGEST_BODY = 64 << 20
"""Bytes of a request."""
_OWN_PROBLEMS, _OWN_CHARACTERS = 4096, 64 << 20  # problems that came with rows and are kept parsed


class TooBusy(RaypolyError):
    """The queue has no room for a request's programs."""


class Service:
    """A verifier with a bounded queue and counters. Thread-safe."""

    def __init__(self, verifier: Verifier, most_waiting: int) -> None:
        """`most_waiting`: programs that wait or run; a larger request is taken when nothing else waits."""
        self._verifier, self._most_waiting = verifier, most_waiting
        self._lock = threading.Lock()
        self._own = LRUCache[str, Problem](_OWN_PROBLEMS, _OWN_CHARACTERS)
        self._waiting = 0
        self._started = time.monotonic()
        self.counts = dict.fromkeys(STATUSES, 0)
        """Verdicts by status."""
        self.refused = 0
        """Requests that found no room."""

    def verdicts(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Raises `UsageError` for a row that can't be used, `TooBusy` where there is no room; nothing ran then."""
        programs = [self._program(place, row) for place, row in enumerate(rows)]
        with self._lock:
            if self._waiting and self._waiting + len(programs) > self._most_waiting:
                self.refused += 1
                raise TooBusy(f"{self._waiting} programs wait; ask again later.")
            self._waiting += len(programs)
        try:
            found = self._verifier.score(programs)
        finally:
            with self._lock:
                self._waiting -= len(programs)
        with self._lock:
            for verdict in found:
                self.counts[verdict.status] += 1
        return [_row_of(verdict) for verdict in found]

    @property
    def retry_after(self) -> int:
        """Seconds after which there is room, by the speed so far."""
        done = sum(self.counts.values())
        return max(1, min(60, round(self._waiting * (time.monotonic() - self._started) / done / 2))) if done else 1

    def metrics(self) -> str:
        lines = ["# TYPE raypoly_verdicts_total counter"]
        lines += [f'raypoly_verdicts_total{{status="{name}"}} {count}' for name, count in self.counts.items()]
        lines += ["# TYPE raypoly_programs_waiting gauge", f"raypoly_programs_waiting {self._waiting}"]
        return "\n".join([*lines, "# TYPE raypoly_refused_total counter", f"raypoly_refused_total {self.refused}", ""])

    def _program(self, place: int, row: Any) -> tuple[Problem, str | None]:
        try:
            problem = self._problem(row)
            texts = {name: row[name] for name in ("response", "code") if name in row}
            if len(texts) != 1 or not isinstance(next(iter(texts.values())), str | None):
                raise ValueError("give response or code, as text or null")
        except ValueError as error:
            raise UsageError(f"rows[{place}]: {error}") from error
        ((kind, text),) = texts.items()
        made = program_in if kind == "response" else program_of
        return problem, None if text is None else made(problem, text)

    def _problem(self, row: Any) -> Problem:
        if not isinstance(row, Mapping):
            raise ValueError("a row is an object of problem_id or problem, and response or code")
        if "problem" in row:
            text = json.dumps(row["problem"], sort_keys=True)
            with self._lock:
                if text in self._own:
                    return self._own[text]
            made = problem_of(row["problem"])
            with self._lock:
                return self._own.put(text, made, len(text))
        name = row.get("problem_id")
        problem = self._verifier.problems.get(str(name))
        if problem is None:
            why = self._verifier.unusable.get(str(name))
            missing = f"there is no problem {name!r}: name a served one, or give problem, a row"
            raise ValueError(missing if why is None else f"the problem {name!r} can't be used: {why}")
        return problem


class _Handler(QuietHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(HTTPStatus.OK, {"status": "ok", "version": __version__})
        elif self.path == "/metrics":
            self.send_body(HTTPStatus.OK, self.server.service.metrics().encode(), "text/plain; version=0.0.4")
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there are POST /v1/verdicts, GET /health and GET /metrics"})

    def do_POST(self) -> None:
        size, given = self.headers.get("Content-Length", ""), self.headers.get("Authorization", "")
        token = given.removeprefix("Bearer ").encode()
        refusal: tuple[HTTPStatus, str] | None = None
        if self.path != "/v1/verdicts":
            refusal = HTTPStatus.NOT_FOUND, "there is POST /v1/verdicts"
        elif self.server.token and not hmac.compare_digest(token, self.server.token.encode()):
            refusal = HTTPStatus.UNAUTHORIZED, "give the token: Authorization: Bearer TOKEN"
        elif not size.isdecimal():
            refusal = HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length"
        elif int(size) > LARGEST_BODY:
            told = f"a request has at most {LARGEST_BODY >> 20} MiB: send fewer rows"
            refusal = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, told
        if refusal is None:
            self._judge(self.rfile.read(int(size)))
            return
        self.close_connection = True  # the body stays unread
        status, why = refusal
        self._answer(status, {"error": why}, {"Connection": "close"})

    def _judge(self, body: bytes) -> None:
        service = self.server.service
        try:
            rows = json.loads(body)["rows"]
            if not isinstance(rows, list):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            self._answer(HTTPStatus.BAD_REQUEST, {"error": 'the body is no JSON object such as {"rows": [...]}'})
            return
        try:
            self._answer(HTTPStatus.OK, {"verdicts": service.verdicts(rows)})
        except UsageError as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except TooBusy as error:
            self._answer(HTTPStatus.TOO_MANY_REQUESTS, {"error": str(error)}, {"Retry-After": str(service.retry_after)})
        except RaypolyError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)}, {"Retry-After": "5"})

    def _answer(self, status: HTTPStatus, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.send_body(status, json.dumps(content).encode(), "application/json", headers)


class Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 256

    def __init__(self, address: tuple[str, int], service: Service, token: str = "") -> None:
        """`token`: without one everybody who reaches the address is served."""
        super().__init__(address, _Handler)
        self.service, self.token = service, token


def _row_of(verdict: Verdict) -> dict[str, Any]:
    found = verdict.evidence
    return verdict_fields(verdict) | {"approach": None if found is None else found.strategy or None}
