"""Tell a server that can't be reached any more from one that is slow.

    silence = SilenceCheck("https://api.openai.com/v1", proxy=None)
    answer = silence.result(future)          # raises `Silent`

Lost packets refuse nothing: a call stands until its timeout. So where a call has stood for `QUIET_SECONDS` and no other
was answered since, a new connection is tried, to the proxy if one is on the way. Only if that fails too the server is
away; a long answer alone says nothing.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar
from urllib.parse import urlsplit

from raypoly.core.endpoint_config import Proxy

T = TypeVar("T")

QUIET_SECONDS, CONNECT_SECONDS = 15.0, 10.0
"""For how long nothing was answered before a new connection is tried, and how long that may take."""
_PORTS = {"http": 80, "https": 443}


class Silent(Exception):
    """Nothing is answered, and no new connection can be made."""


class SilenceCheck:
    """What all calls of one server share; thread-safe."""

    def __init__(self, url: str, proxy: Proxy | None) -> None:
        parts = urlsplit(url if proxy is None else proxy.address)
        self._place = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 1080)
        self._lock = threading.Lock()
        self._heard = self._failed = float("-inf")
        self._reason = ""

    def result(self, answer: Future[T]) -> T:
        """The future's result, or its exception. Raises `Silent`."""
        began = time.monotonic()
        while not concurrent.futures.wait([answer], self._patience(began)).done:
            with self._lock:  # one tries for all
                recent = time.monotonic() - CONNECT_SECONDS  # of what failed earlier the network may have recovered
                if self._patience(began) <= 0 and self._failed <= max(began, self._heard, recent):
                    self._connect()
                answered = answer.done() and answer.exception() is None
                if self._failed > max(began, self._heard, recent) and not answered:
                    raise Silent(f"no answer for {QUIET_SECONDS:g} s, and no new connection: {self._reason}")
        found = answer.result()
        self._heard = time.monotonic()
        return found

    def heard_since(self, began: float) -> bool:
        """Whether another call was answered since, by `time.monotonic`."""
        return self._heard > began

    def _patience(self, began: float) -> float:
        return max(began, self._heard) + QUIET_SECONDS - time.monotonic()

    def _connect(self) -> None:
        tried = time.monotonic()
        made = in_thread(lambda: asyncio.run(self._open()))  # looking up a name knows no timeout
        if not concurrent.futures.wait([made], CONNECT_SECONDS).done:
            self._reason = f"none within {CONNECT_SECONDS:g} s"
        elif (error := made.exception()) is not None:
            self._reason = str(error) or type(error).__name__
        else:
            self._heard = time.monotonic()
        if self._heard < tried:  # else another call was answered meanwhile
            self._failed = time.monotonic()

    async def _open(self) -> None:
        # without a handshake: a server of one thread shakes no hands while it works
        _, writer = await asyncio.open_connection(*self._place, happy_eyeballs_delay=0.25)
        writer.close()


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Start `work` in a thread of its own. An executor's are joined when Python ends: an interrupted command would wait
    for a server that hangs."""
    future: Future[T] = Future()

    def settle() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
            future.set_exception(error)

    threading.Thread(target=settle, name="judging", daemon=True).start()
    return future
