"""The retry budget: a call that fails through infrastructure is tried again, but not for ever.

    retries = Retries(10, note=progress.note)
    await retries.again("The generator", error)     # waits, or raises `OutOfRetries`
    retries.progress()                              # whenever something was committed: the budget refills

A loss that takes many calls with it counts once: a caller that comes during another's wait shares that wait.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
)

from raypoly.errors import OutOfRetries, TransferBroken

_DEFAULT = 10
REFILL_SECONDS = 180.0
"""Seconds of progress that give one retry back."""
IDLE_SECONDS = 60.0
"""The most of the time between two signs of progress that counts as progress."""
FIRST_WAIT, LONGEST_WAIT = 0.25, 30.0
"""Seconds before a retry. The wait doubles with each retry used and is multiplied by 0.5 to 1.5 at random."""

LOST = (RayActorError, WorkerCrashedError, NodeDiedError, OutOfMemoryError, ObjectLostError, GetTimeoutError)
"""Infrastructure failed: an actor, its node, its memory or the network. Replace the actor and call again."""


class Retries:
    """Used from one event loop."""

    def __init__(
        self,
        limit: int = _DEFAULT,
        note: Callable[[str], None] = lambda text: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit, self._note, self._now = limit, note, now
        self._left = float(limit)
        self._progressed = now()
        self._waiting: asyncio.Task[None] | None = None

    @property
    def left(self) -> int:
        """Whole retries left in the budget."""
        return int(self._left)

    async def again(self, who: str, error: BaseException) -> None:
        """Use one retry and return after its wait. Raises `OutOfRetries` where the budget is used up."""
        if self._waiting is not None and not self._waiting.done():
            await asyncio.shield(self._waiting)
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
        await asyncio.shield(self._waiting)

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
    if isinstance(error, NodeDiedError) or "node has died" in text or "node was terminated" in text:
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
