"""The structural judge behind an HTTP socket. Tests can stop and start it.

python tests/support/judge_server.py --port 8123

It labels programs by syntax alone and runs none of them. --key NAME: it asks for that environment variable's value as
bearer token. --fault 500|429|reset|garbage|slow: it commits that fault.
"""

import argparse
import json
import os
import socket
import struct
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from raypoly.core.values import Evidence
from raypoly.strategies.judge.structural import label_evidence
from raypoly.strategies.live_code.constructs import live_constructs
from raypoly.strategies.live_code.live_program import canonical_text, live_program


def evidence(program: str, entry_point: str) -> Evidence | None:
    """Evidence by syntax alone. None if the program does not parse."""
    if not program.strip():
        return None
    try:
        live = live_program(program, entry_point)
        return Evidence(canonical_text(live), live_constructs(live.tree), {}, "")
    except (SyntaxError, ValueError, RecursionError):
        return None


class Handler(BaseHTTPRequestHandler):
    """Answers probes and label requests, or misbehaves as asked."""

    fault = ""
    key = ""

    def do_GET(self) -> None:
        self.reply({"ready": True})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        labels = label_evidence([evidence(program, request["entry_point"]) for program in request["programs"]])
        self.reply({"ids": labels.ids.tolist(), "degenerate": labels.degenerate.tolist(), "judge": "http-structural-1"})

    def reply(self, answer: dict[str, object]) -> None:
        if self.fault == "reset":
            # closing with linger 0 sends a reset instead of an orderly end
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        if self.fault == "slow":
            time.sleep(1)
        denied = bool(self.key) and self.headers.get("Authorization") != f"Bearer {self.key}"
        status = 401 if denied else int(self.fault) if self.fault.isdigit() else 200
        body = b"{'ids': the first two}" if self.fault == "garbage" else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: a request holds programs, and its header a key."""


def bind_judge_server(port: int, fault: str = "", key: str = "") -> ThreadingHTTPServer:
    """Bind a server; port 0 picks a free port. The caller runs `serve_forever`."""
    handler = type("JudgeHandler", (Handler,), {"fault": fault, "key": key})
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fault", default="")
    parser.add_argument("--key", default="", help="environment variable that holds the key")
    options = parser.parse_args()
    server = bind_judge_server(options.port, options.fault, os.environ.get(options.key, "") if options.key else "")
    print(f"http://127.0.0.1:{server.server_address[1]}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
