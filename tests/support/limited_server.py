"""The faulty server with enforced rate limits, in a process of its own. At its end it prints what it saw.

    python -m tests.support.limited_server --kind smooth --requests 500 --tokens 200000 --seconds 0.3 8

Prints its address, serves until its standard input ends, then prints a `ServerLog` as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field

from tests.support.faulty_server import Server, running
from tests.support.rate_enforcement import KINDS, Enforcement

_TICK, _STALL = 0.05, 0.1
_PRIORITY = -10
"""Niceness, where the system allows it: a real server would not share a processor with its clients."""


@dataclass
class ServerLog:
    """The requests that arrived. Times are of the machine's monotonic clock, which other processes share."""

    served: list[tuple[float, int]] = field(default_factory=list)
    """(seconds, tokens) of each request that was admitted."""
    refused: list[float] = field(default_factory=list)
    stalled: list[float] = field(default_factory=list)
    """Seconds by which this process woke late, each above a tenth: it counted requests of that time late."""


class LimitedServer(Server):
    """Admits requests by `enforcement`, and takes between `shortest` and `longest` seconds for each."""

    def __init__(self, enforcement: Enforcement, shortest: float, longest: float) -> None:
        super().__init__()
        self.enforcement, self.log = enforcement, ServerLog()
        self._range = shortest, longest
        self._rng = random.Random(0)

    def watch_the_machine(self) -> None:
        """Log when this process gets no processor time, for as long as it lives."""
        while True:
            due = time.monotonic() + _TICK
            time.sleep(_TICK)
            if (late := time.monotonic() - due) > _STALL:
                self.log.stalled.append(late)

    def admit(self, tokens: int) -> tuple[bool, dict[str, str]]:
        """Ask the enforcement, and return after the time that an answer takes."""
        with self._lock:
            now = time.monotonic()
            room = self.enforcement.admit(now, tokens)
            headers = self.enforcement.headers(now)
            self.bodies.clear()
            if not room:
                self.log.refused.append(now)
                return False, headers
            self.log.served.append((now, tokens))
            shortest, longest = self._range
            seconds = shortest * (longest / shortest) ** self._rng.random()  # many short answers, few long ones
        time.sleep(seconds)
        return True, headers


class ServerProcess:
    """A limited server in another process."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url, self._process = url, process

    def stop(self) -> ServerLog:
        """End the server and return its log."""
        said, _ = self._process.communicate("", timeout=60)
        found = json.loads(said)
        return ServerLog([(at, tokens) for at, tokens in found["served"]], found["refused"], found["stalled"])


@contextmanager
def running_limited_server(
    kind: str, requests: int, tokens: int, tells: bool, seconds: Sequence[float]
) -> Iterator[ServerProcess]:
    """Run the server in another process while the block runs. It is killed at the end if nobody stopped it."""
    command = [sys.executable, "-m", "tests.support.limited_server", "--kind", kind]
    command += ["--requests", str(requests), "--tokens", str(tokens), "--seconds", *map(str, seconds)]
    command += [] if tells else ["--silent"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield ServerProcess(process.stdout.readline().strip(), process)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="smooth")
    parser.add_argument("--requests", type=int, default=500, help="requests a minute")
    parser.add_argument("--tokens", type=int, default=200_000, help="tokens a minute")
    parser.add_argument("--silent", action="store_true", help="send no x-ratelimit-* headers")
    parser.add_argument("--seconds", type=float, nargs=2, default=(0.3, 8.0), help="shortest and longest answer")
    options = parser.parse_args()
    limits = Enforcement(options.kind, options.requests, options.tokens, tells=not options.silent)
    state = LimitedServer(limits, *options.seconds)
    with suppress(PermissionError):
        os.nice(_PRIORITY)
    threading.stack_size(256 * 1024)
    threading.Thread(target=state.watch_the_machine, daemon=True).start()
    with running(state):
        print(state.url, flush=True)
        sys.stdin.read()
    print(json.dumps(asdict(state.log)), flush=True)


if __name__ == "__main__":
    main()
