"""Calls of actors from the driver: unwrapped errors, open calls, and a retry budget for lost actors.

    context = CallContext(Retries(10, note=progress.note), InFlightCalls())
    with context.in_flight.waiting("score", "scorer-0", actor):
        verdicts = await result(actor.score.remote(...))
    await context.retries.again("The generator", error)     # waits, or raises `OutOfRetries`
    context.retries.progress()                              # something was committed: the budget refills

A loss that takes many calls with it counts once: a caller that comes during another's wait shares that wait.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from raypoly.core.errors import OutOfRetries, RaypolyError, TransferBroken

REFILL_SECONDS = 180.0
"""Seconds of progress that give one retry back."""
IDLE_SECONDS = 60.0
"""The most of the time between two signs of progress that counts as progress."""
FIRST_WAIT, LONGEST_WAIT = 0.25, 30.0
"""Seconds before a retry. The wait doubles with each retry used and is multiplied by 0.5 to 1.5 at random."""

_NODE_SECONDS = 60.0
"""Seconds in which the actors of a lost node are missed, one after the other."""

_CALLS_SECONDS = 2.0
"""Seconds in which all calls of a lost actor end."""

LOST = (RayActorError, WorkerCrashedError, NodeDiedError, OutOfMemoryError, ObjectLostError, GetTimeoutError)
"""Infrastructure failed: an actor, its node, its memory or the network. Replace the actor and call again."""


class Retries:
    """Used from one event loop."""

    def __init__(
        self,
        limit: int = 10,
        note: Callable[[str], None] = lambda text: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit, self._note, self._now = limit, note, now
        self._left = float(limit)
        self._progressed = now()
        self._waiting: asyncio.Task[None] | None = None
        self.losses = Counter[str]()
        """How often each actor was lost, by who it is."""
        self._who: set[str] = set()
        """Who was lost before this wait, or in it."""
        self._node_lost = -math.inf
        self._with_node: dict[str, float] = {}
        """Who was lost with it, and when that was noticed first."""

    @property
    def left(self) -> int:
        """Whole retries left in the budget."""
        return int(self._left)

    async def again(self, who: str, error: BaseException) -> None:
        """Use one retry and return after its wait. Raises `OutOfRetries` where the budget is used up.

        All actors that are lost with one node use one.
        """
        counted = self._lost_with_others(who, error)
        if self._waiting is not None and not self._waiting.done():
            self._count(who)
            await asyncio.shield(self._waiting)
            return
        if counted:
            self._count(who)
            await asyncio.sleep(FIRST_WAIT)
            return
        if self._left < 1:
            raise OutOfRetries(
                f"{reason(error)}: {who} was lost once more, and the {self._limit} retries of run.retries are used up. "
                "Everything committed is kept; remove the cause and run the same command again."
            ) from error
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (self._limit - self._left)) * (0.5 + random.random())
        self._left -= 1
        self._note(f"{who} was lost ({reason(error)}): trying again, {self.left} of {self._limit} retries are left.")
        self._waiting = asyncio.create_task(asyncio.sleep(wait))
        self._who.clear()
        self._count(who)
        await asyncio.shield(self._waiting)

    def _lost_with_others(self, who: str, error: BaseException) -> bool:
        """Whether the actor's node is one whose loss was counted by another actor of it, as far as can be known."""
        if not node_died(error):
            return False
        now = self._now()
        again = now - self._with_node.get(who, now) > _CALLS_SECONDS
        if again or now - self._node_lost > _NODE_SECONDS:
            self._node_lost, self._with_node = now, {who: now}
            return False
        self._with_node.setdefault(who, now)
        return True

    def _count(self, who: str) -> None:
        """Count a loss, once for all its callers."""
        if who not in self._who:
            self._who.add(who)
            self.losses[who] += 1

    def progress(self) -> None:
        """Refill the budget: something was committed."""
        now = self._now()
        self._left = min(self._limit, self._left + min(IDLE_SECONDS, now - self._progressed) / REFILL_SECONDS)
        self._progressed = now


def reason(error: BaseException) -> str:
    """Why a call has no answer, in a few words, by Ray's error."""
    text = str(error)
    if isinstance(error, OutOfMemoryError) or "OOM" in text.partition("Some common causes")[0]:
        return "its node ran out of memory"
    if node_died(error):
        return "its node died"
    if isinstance(error, GetTimeoutError):
        return "it did not answer in time"
    if isinstance(error, TransferBroken):
        return "the learner, or the way to it, was lost in the middle of new weights"
    if isinstance(error, ObjectLostError):
        return "what it needed was lost with its node"
    if isinstance(error, ActorUnavailableError):
        return "it can't be reached"
    if "ray.kill" in text:
        return "it was ended"
    return "its process died: killed, out of memory, or crashed"


def node_died(error: BaseException) -> bool:
    """Whether an actor was lost with its node, which no program causes."""
    text = str(error)
    return isinstance(error, NodeDiedError) or "node has died" in text or "node was terminated" in text


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
        self.on_end: Callable[[str, float], None] = lambda stage, seconds: None
        """Called with the stage and the seconds of each call that has ended, with or without an answer."""

    @contextmanager
    def waiting(self, stage: str, who: str, actor: Any = None) -> Iterator[InFlightCall]:
        """Keep a call open inside `with`. Call `beat()` on it where a part of the answer comes."""
        call = InFlightCall(stage, who, actor)
        began = call.since
        number = next(self._numbers)
        with self._lock:
            self._open[number] = call
        try:
            yield call
        finally:
            with self._lock:
                del self._open[number]
            self.on_end(stage, time.monotonic() - began)

    @property
    def open(self) -> list[InFlightCall]:
        with self._lock:
            return list(self._open.values())


@dataclass(frozen=True)
class CallContext:
    """What all actor clients in the driver share: the retry budget and the open calls."""

    retries: Retries = field(default_factory=Retries)
    in_flight: InFlightCalls = field(default_factory=InFlightCalls)
