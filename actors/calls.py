"""Calls of actors from the driver: unwrapped errors, one tuple of errors for a lost actor, and a list of open calls.

context = CallContext(Retries(10), InFlightCalls())
with context.in_flight.waiting("score", "scorer-0", actor):
    verdicts = await result(actor.score.remote(...))
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ray.exceptions import RayTaskError

from actors.retries import LOST as LOST
from actors.retries import Retries
from raypoly.errors import RaypolyError

T = TypeVar("T")

START = "start"
"""The stage of a call that starts an actor. Its pulse stands still while it loads."""


async def result(answer: Awaitable[T]) -> T:
    """The answer of a call. An actor's `RaypolyError` is raised without Ray's wrapper."""
    try:
        return await answer
    except RayTaskError as error:
        if isinstance(error.cause, RaypolyError):
            raise error.cause from error
        raise


@dataclass(eq=False)
class InFlightCall:
    """A call whose answer the driver awaits."""

    stage: str
    who: str
    """The actor's name, or another source of the answer, such as storage."""
    actor: Any = None
    """The actor's handle; None for another source."""
    since: float = field(default_factory=time.monotonic)
    """Its last progress, by `time.monotonic`."""

    def beat(self) -> None:
        """Note progress: a part of the answer came."""
        self.since = time.monotonic()


class InFlightCalls:
    """All calls that are open now. The watchdog reads them from another thread."""

    def __init__(self) -> None:
        self._open: dict[int, InFlightCall] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    @contextmanager
    def waiting(self, stage: str, who: str, actor: Any = None) -> Iterator[InFlightCall]:
        """Keep a call open inside `with`. Call `beat()` on it where a part of the answer comes."""
        call = InFlightCall(stage, who, actor)
        number = next(self._numbers)
        with self._lock:
            self._open[number] = call
        try:
            yield call
        finally:
            with self._lock:
                del self._open[number]

    @property
    def open(self) -> list[InFlightCall]:
        with self._lock:
            return list(self._open.values())


@dataclass(frozen=True)
class CallContext:
    """What all actor clients in the driver share: the retry budget and the open calls."""

    retries: Retries = field(default_factory=Retries)
    in_flight: InFlightCalls = field(default_factory=InFlightCalls)
