"""Waiting for an actor's answer: errors come back as themselves, a lost actor is one kind of error, no wait is unseen.

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
"""The stage of an actor that loads what it needs; it says nothing meanwhile."""


async def result(answer: Awaitable[T]) -> T:
    """The answer; an error of raypoly's kinds is raised as itself, without Ray's wrapping around it."""
    try:
        return await answer
    except RayTaskError as error:
        if isinstance(error.cause, RaypolyError):
            raise error.cause from error
        raise


@dataclass(eq=False)
class InFlightCall:
    """Something that is waited for."""

    stage: str
    who: str
    """The actor's name, or what else should answer."""
    actor: Any = None
    """Its handle; None where it is no actor."""
    since: float = field(default_factory=time.monotonic)
    """When it last showed progress, by `time.monotonic`."""

    def beat(self) -> None:
        self.since = time.monotonic()


class InFlightCalls:
    """All that is waited for right now; read from another thread."""

    def __init__(self) -> None:
        self._open: dict[int, InFlightCall] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    @contextmanager
    def waiting(self, stage: str, who: str, actor: Any = None) -> Iterator[InFlightCall]:
        """Inside, an answer is awaited; `beat()` the call where a part of it comes."""
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
    """What all the driver's sides of actors share."""

    retries: Retries = field(default_factory=Retries)
    in_flight: InFlightCalls = field(default_factory=InFlightCalls)
