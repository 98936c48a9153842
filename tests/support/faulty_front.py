"""The part that all faulty servers share: listener, connections and faults.

class Echo(Front):
    def answer(self, body, headers): return Answer(200, {"choices": [...]})

with running(Echo(faults=["500", "reset"])) as front:      # the first two requests fail, the rest are answered
    ...                                                    # front.url
    front.close(); front.open()                            # meanwhile connections are refused
"""

from __future__ import annotations

import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any, TypeVar

from tests.support.certificates import Certificates
from tests.support.faulty_handler import Answer, Handler
from tests.support.judge_faults import CONTENT, TLS_FAULTS, Storm, check_fault_names, programs_of

_MOST_SPOILT = 3
"""Most answers about one set of programs that a storm spoils. The judge gives a group up after five."""


@dataclass
class Front(ABC):
    """Which faults requests meet, and a log of the faults that were committed."""

    faults: Sequence[str] = ()
    """The faults of the first requests, in order; `ok` means none. With `forever` the last one repeats."""
    forever: bool = False
    storm: Storm | None = None
    """Faults in place of `faults`."""
    certificates: Certificates | None = None
    """With certificates it speaks https, one request per connection."""
    latency: float = 0.0
    host: str = "127.0.0.1"
    port: int = 0
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Every request's body, in order of arrival."""
    authorizations: list[str] = field(default_factory=list)
    served: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=list)
    """Bodies and answers of the requests that met no fault."""
    struck: Counter[str] = field(default_factory=Counter)
    """How often each fault was committed."""
    most_at_once: int = 0
    stopped: bool = False
    """Whether open connections are reset at their next request."""
    _at_once: int = 0
    _drawn: int = 0
    _closed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _spoilt: Counter[frozenset[str]] = field(default_factory=Counter)
    _keeper: socket.socket | None = None
    _listener: ThreadingHTTPServer | None = None
    _listening: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.certificates is None and set(check_fault_names(self.faults)) & set(TLS_FAULTS):
            raise ValueError("a TLS fault needs certificates")

    @abstractmethod
    def answer(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        """The answer if no fault strikes."""

    def models(self, headers: Mapping[str, str]) -> Answer:
        return Answer(200, {"object": "list", "data": [{"id": "marker", "object": "model"}]})

    def draw(self, body: Mapping[str, Any] | None = None) -> str:
        """Draw the next request's fault. `body` is None if the request has not been read yet."""
        with self._lock:
            if self.storm is None:
                number, self._drawn = self._drawn, self._drawn + 1
                if number < len(self.faults):
                    return self.faults[number]
                return self.faults[-1] if self.forever and self.faults else "ok"
            return self.storm.strike(may_spoil=body is None or self._spoilt[_group(body)] < _MOST_SPOILT)

    def settle(self, fault: str, body: Mapping[str, Any]) -> str:
        """Decide the fault of a request. A storm spares a set of programs that it has spoilt often enough."""
        with self._lock:
            if self.storm is not None and fault in CONTENT:
                self._spoilt[_group(body)] += 1
                fault = fault if self._spoilt[_group(body)] <= _MOST_SPOILT else "ok"
            self.struck[fault] += 1
            return fault

    def arrived(self, body: dict[str, Any], authorization: str) -> None:
        with self._lock:
            self.bodies.append(body)
            self.authorizations.append(authorization)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)

    def gone(self) -> None:
        with self._lock:
            self._at_once -= 1

    def open(self) -> None:
        """Listen, always on the port of the first call."""
        with self._listening:
            if self._listener is not None:
                return
            if self._keeper is None:
                # a bound socket that never listens keeps the port while the listener is closed
                self._keeper = _bound(self.host, self.port)
                self.port = self._keeper.getsockname()[1]
                scheme = "http" if self.certificates is None else "https"
                self.url = f"{scheme}://{self.host}:{self.port}/v1"
            self.stopped = False
            self._listener = _Listener(self)
            threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Refuse connections, and reset the open ones at their next request."""
        with self._listening:
            self.stopped = True
            self._closed += 1
            if self._listener is not None:
                self._listener.shutdown()
                self._listener.server_close()
                self._listener = None

    def away(self, seconds: float) -> None:
        """Close for some seconds, and return once closed. Another `open` or `close` in the meantime wins."""
        self.close()
        closed = self._closed

        def back() -> None:
            if self._closed == closed:
                self.open()

        timer = threading.Timer(seconds, back)
        timer.daemon = True
        timer.start()

    def end(self) -> None:
        """Close for good."""
        self.close()
        if self._keeper is not None:
            self._keeper.close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = True
    request_queue_size = 128

    def __init__(self, front: Front) -> None:
        super().__init__((front.host, front.port), type("FaultyHandler", (Handler,), {"front": front}))

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore broken connections, which are intended, and print every other error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


F = TypeVar("F", bound=Front)


@contextmanager
def running(front: F) -> Iterator[F]:
    """Serve in a thread while the block runs. The address is `front.url`."""
    front.open()
    try:
        yield front
    finally:
        front.end()


def _bound(host: str, port: int) -> socket.socket:
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    keeper.bind((host, port))
    return keeper


def _group(body: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(programs_of(body))
