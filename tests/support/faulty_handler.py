"""One connection to a faulty server. It commits every fault.

The front says which fault a request meets and what the answer would have been (`tests/support/faulty_front.py`).
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from tests.support.certificates import Certificates
from tests.support.judge_faults import CONTENT, TLS_FAULTS, error_body, spoil_completion

if TYPE_CHECKING:
    from tests.support.faulty_front import Front

_AWAY_SECONDS = 0.5
"""For how long the fault `refused` keeps the listener closed."""
_HANG_SECONDS = 3.0


@dataclass(frozen=True)
class Answer:
    """An HTTP answer with a JSON body."""

    status: int
    content: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    front: Front
    _drawn: str | None = None

    def setup(self) -> None:
        if self.front.certificates is not None:
            self._drawn = self.front.draw()
            self.request = self._shaken(self.front.certificates, self._drawn)
        super().setup()

    def finish(self) -> None:
        super().finish()
        if self._drawn is not None:
            self.request.close()  # the listener closes the bare socket, which TLS has taken over

    def _shaken(self, certificates: Certificates, fault: str) -> ssl.SSLSocket:
        """Do the TLS handshake. Raises `OSError` if the fault breaks it."""
        if fault in TLS_FAULTS:
            self.front.struck[fault] += 1
        if fault == "tls-garbage":
            self.request.recv(4096)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            raise ConnectionAbortedError("answered a TLS hello in plain HTTP")
        context = certificates.bad if fault == "tls-certificate" else certificates.good
        return context.wrap_socket(self.request, server_side=True)

    @property
    def sent(self) -> dict[str, str]:
        """The request's headers, named as in `Content-Type`."""
        return {name.title(): value for name, value in self.headers.items()}

    def do_GET(self) -> None:
        self.reply(self.front.models(self.sent))

    def do_POST(self) -> None:
        front = self.front
        if front.stopped:
            self.reset()
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        front.arrived(body, self.headers.get("Authorization", ""))
        fault = front.settle(self._drawn or front.draw(body), body)
        try:
            time.sleep(front.latency)
            self.serve(fault, body)
        except OSError:
            self.close_connection = True
        finally:
            front.gone()

    def serve(self, fault: str, body: Mapping[str, Any]) -> None:
        """Answer, or commit the fault."""
        if fault == "ok" or fault in CONTENT:
            answer = self.front.answer(body, self.sent)
            spoils = fault != "ok" and answer.status == 200
            if fault in ("ok", "no-usage") and answer.status == 200:
                self.front.served.append((body, answer.content))
            self.reply(Answer(200, spoil_completion(answer.content, fault), answer.headers) if spoils else answer)
        elif fault in ("cut", "drip"):
            text = json.dumps(self.front.answer(body, self.sent).content).encode()
            self.start(200, {"Content-Length": str(len(text))})
            self.close_connection = True
            if fault == "drip":
                self.drip(text)
            else:
                self.wfile.write(text[: len(text) // 2])
        else:
            self.fail(fault)

    def fail(self, fault: str) -> None:
        """A fault that needs no answer."""
        if fault == "quota":
            self.reply(Answer(429, error_body("You exceeded your current quota.", "insufficient_quota")))
        elif fault == "400-context":
            self.reply(Answer(400, error_body("The maximum context length is 8 tokens.", "context_length_exceeded")))
        elif fault == "echo-key":
            self.reply(Answer(500, error_body(f"Failed with {self.headers.get('Authorization')}", "server_error")))
        elif fault[:3].isdigit():
            waits = {"retry-after": {"retry-after": "0.2"}, "long": {"retry-after": "3600"}}
            self.reply(Answer(int(fault[:3]), error_body(f"Injected {fault}.", "injected"), waits.get(fault[4:], {})))
        elif fault in ("reset", "refused"):
            if fault == "refused":
                self.front.away(_AWAY_SECONDS)
            self.reset()
        elif fault == "hang":
            time.sleep(_HANG_SECONDS)
            self.close_connection = True
        elif fault == "drip-headers":
            self.drip(b"HTTP/1.1 200 OK\r\nX-Padding: " + b"x" * 500)
        elif fault in ("garbage", "not-json"):
            page = b"<html>Welcome!</html>" if fault == "garbage" else b'{"choices": [{"message"'
            self.start(200, {"Content-Length": str(len(page)), "Content-Type": "text/html"})
            self.wfile.write(page)
        else:
            raise ValueError(f"{fault} can't be committed on this connection")

    def reset(self) -> None:
        # closing with linger 0 sends a reset instead of an orderly end
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def drip(self, text: bytes) -> None:
        for byte in text[:60]:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(0.05)
        self.close_connection = True

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        if self._drawn is not None:
            headers = {**headers, "Connection": "close"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def reply(self, answer: Answer) -> None:
        text = json.dumps(answer.content).encode()
        length = {"Content-Type": "application/json", "Content-Length": str(len(text))}
        self.start(answer.status, {**answer.headers, **length})
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: a request holds programs, and its header a key."""
