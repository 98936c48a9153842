"""An HTTP handler for the commands' own servers: answers whole bodies, and logs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from raypoly.core import __version__


class QuietHandler(BaseHTTPRequestHandler):
    protocol_version, server_version, timeout = "HTTP/1.1", f"raypoly/{__version__}", 600.0  # seconds idle

    def send_body(self, status: HTTPStatus, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        """Send an answer of media type `kind`; nothing is raised where the client has left."""
        try:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
