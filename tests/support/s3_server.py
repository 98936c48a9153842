"""An S3 server on loopback that commits the faults that you ask for and logs its requests.

    with s3_server() as s3:
        open_store(f"s3://{s3.bucket}/run?endpoint_override={s3.endpoint}&region=us-east-1")
        s3.faults.append(Fault("cut", at=3, after=True))   # the third request from now takes effect, unanswered
        s3.requests[-1].method

The server is moto's, behind one layer that counts requests, strikes with faults, and makes conditional writes atomic
as a real store's are. Credentials are `s3.environment`: any will do.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.local import LocalProxy
from werkzeug.serving import make_server

Kind = Literal["error", "slow_down", "cut", "hang", "short", "delay", "unsupported", "denied"]
_COUNTER = itertools.count(1)
_ANSWERS = {
    "error": ("500 Internal Server Error", "InternalError"),
    "slow_down": ("503 Slow Down", "SlowDown"),
    "unsupported": ("501 Not Implemented", "NotImplemented"),
    "denied": ("403 Forbidden", "AccessDenied"),
}


@dataclass
class Request:
    """One request that arrived."""

    number: int
    """From 1, since the server started."""
    method: str
    key: str
    """Bucket and key."""
    query: str
    conditional: bool
    """Whether it may only create."""
    struck: str = ""
    """The fault that it met."""


@dataclass
class Fault:
    """A fault that strikes some of the requests that arrive after it was set."""

    kind: Kind
    at: int = 1
    """The first matching request that it strikes, counted from 1."""
    times: int = 1
    """How many matching requests in a row it strikes; -1: every one from then on."""
    after: bool = False
    """Whether the request takes effect before the fault strikes."""
    where: Callable[[Request], bool] = lambda request: True
    seconds: float = 0.0
    """For `delay`."""
    seen: int = field(default=0, init=False)

    def strikes(self, request: Request) -> bool:
        if not self.where(request):
            return False
        self.seen += 1
        return self.seen >= self.at and (self.times < 0 or self.seen < self.at + self.times)


@dataclass
class S3Server:
    """A running server."""

    bucket: str
    endpoint: str = ""
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    on_request: Callable[[Request], None] = lambda request: None
    """Called before a request takes effect, from the server's threads: a test may kill its client there."""
    conditions: Literal["kept", "ignored", "unknown"] = "kept"
    """What becomes of `If-None-Match`; `unknown` answers 501."""
    open_again: threading.Event = field(default_factory=threading.Event)
    """Ends what hangs."""

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}

    def end_faults(self) -> None:
        """Commit no more faults, and let hanging requests end."""
        self.faults.clear()
        self.conditions = "kept"
        self.on_request = lambda request: None
        self.open_again.set()
        self.open_again = threading.Event()

    def uri(self, prefix: str, **options: str) -> str:
        """A run.dir on this server."""
        query = "&".join(f"{k}={v}" for k, v in {"endpoint_override": self.endpoint, **options}.items())
        return f"s3://{self.bucket}/{prefix}?{query}"

    def client(self) -> Any:
        """A boto3 client for a look from outside. Its requests are logged too."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            region_name="us-east-1",
        )

    def count(self, method: str = "", key: str = "") -> int:
        """Number of requests so far of a method whose key contains a text."""
        return sum(request.method.startswith(method) and key in request.key for request in self.requests)


class _Layer:
    """WSGI around moto: it logs, commits the fault, then calls moto. Writing requests go one at a time."""

    def __init__(self, server: S3Server) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = server
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request, fault = self._arrived(environ)
        self._server.on_request(request)
        if request.conditional and self._server.conditions == "ignored":
            del environ["HTTP_IF_NONE_MATCH"]
        if fault is None and request.conditional and self._server.conditions == "unknown":
            fault = Fault("unsupported")
        if fault is None:
            return self._answer(environ, start_response)
        if fault.kind == "delay":
            self._server.open_again.wait(fault.seconds)
            return self._answer(environ, start_response)
        took_effect = fault.after or fault.kind == "short"
        if took_effect:
            answer: dict[str, Any] = {}
            body = b"".join(self._answer(environ, lambda status, headers: answer.update(s=status, h=headers)))
        if fault.kind == "short":
            start_response(answer["s"], answer["h"])
            return [body[: len(body) // 2]]
        if fault.kind in _ANSWERS:
            status, code = _ANSWERS[fault.kind]
            if not took_effect:
                _drain(environ)
            start_response(status, [("Content-Type", "application/xml"), ("Connection", "close")])
            return [f"<Error><Code>{code}</Code><Message>by the test</Message></Error>".encode()]
        if fault.kind == "hang":
            self._server.open_again.wait(600)
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError("cut by the test")

    def _arrived(self, environ: dict[str, Any]) -> tuple[Request, Fault | None]:
        with self._lock:
            request = Request(
                number=len(self._server.requests) + 1,
                method=environ["REQUEST_METHOD"],
                key=environ["PATH_INFO"].lstrip("/"),
                query=environ.get("QUERY_STRING", ""),
                conditional=environ.get("HTTP_IF_NONE_MATCH") == "*",
            )
            self._server.requests.append(request)
            struck = [fault for fault in self._server.faults if fault.strikes(request)]
            request.struck = struck[0].kind if struck else ""
            return request, struck[0] if struck else None

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return list(self._app(environ, start_response))
        with self._writing:  # moto looks and then writes: two conditional writes could both win
            return list(self._app(environ, start_response))


def _no_attribute(proxy: LocalProxy[Any], name: str) -> Any:
    raise AttributeError(name)


# vLLM asks the values of every module for an attribute when it loads, Flask's (by moto) too: outside of a request
# they have none, instead of an error that would end an engine's start in the same process.
vars(LocalProxy)["__getattr__"].fallback = _no_attribute


class _Handler(MotoRequestHandler):
    """Moto's handler of requests, without its log: requests are in the server's own."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Says nothing."""


def _drain(environ: dict[str, Any]) -> None:
    """Read the request's body, or the client sees a reset instead of the answer."""
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))


@contextmanager
def s3_server(host: str = "127.0.0.1") -> Iterator[S3Server]:
    """Run a server with an empty bucket while the block runs. `host`: the local address that it listens on."""
    server = S3Server(bucket=f"runs-{next(_COUNTER)}")  # moto's content is the process's: a new bucket is empty
    listener = make_server(host, 0, _Layer(server), threaded=True, request_handler=_Handler)
    server.endpoint = f"http://{host}:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)  # looks so often for its end
    thread.start()
    try:
        server.client().create_bucket(Bucket=server.bucket)
        server.requests.clear()
        yield server
    finally:
        server.open_again.set()
        listener.shutdown()
        thread.join()
        listener.server_close()
