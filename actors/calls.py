"""Calls of actors from the driver: unwrapped errors, open calls, and a retry budget for lost actors.

    context = CallContext(Retries(10, note=progress.note), InFlightCalls())
    with context.in_flight.waiting("score", "scorer-0", actor):
        verdicts = await result(actor.score.remote(...))
    await context.again("The generator", error)             # waits, or raises `OutOfRetries`
    context.retries.progress()                              # something was committed: the budget refills

A loss that takes many calls with it counts once: a caller that comes during another's wait shares that wait.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

import ray
from ray.exceptions import (
    ActorUnavailableError,
    GetTimeoutError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    RuntimeEnvSetupError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeLabelSchedulingStrategy, NotIn, PlacementGroupSchedulingStrategy

from raypoly.core.errors import BrokenEnvironment, OutOfRetries, RaypolyError, TransferBroken

REFILL_SECONDS = 180.0
IDLE_SECONDS = 60.0
"""Longest time between two signs of progress that counts as progress."""
FIRST_WAIT, LONGEST_WAIT = 0.25, 30.0
"""Seconds before a retry: doubled with each retry used, times 0.5 to 1.5 at random."""

NOTE_SECONDS = 30.0
_FIRST_NOTE_SECONDS = 5.0

_NODE_SECONDS = 60.0  # seconds in which the actors of a lost node are missed, one after the other

_CALLS_SECONDS = 2.0  # seconds in which all calls of a lost actor end

LOST = (
    RayActorError,
    WorkerCrashedError,
    NodeDiedError,
    OutOfMemoryError,
    ObjectLostError,
    GetTimeoutError,
    RuntimeEnvSetupError,
)
"""Failures of infrastructure: an actor, its node, its memory or the network. Replace the actor and call again."""
_NODE = re.compile(r"\[Node ([\w.:]+)\]|\bip=([\w.:]+)")  # as Ray names one in its errors
_NO_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_OTHER_VERSION = re.compile(r"^ImportError: raypoly (\S+) is installed, and the driver has (\S+)", re.MULTILINE)


class Retries:
    """A run's retry budget for lost actors. Used from one event loop."""

    def __init__(
        self,
        limit: int = 10,
        note: Callable[[str], None] = lambda text: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit, self._now = limit, now
        self.note = note
        """Tells the user a sentence."""
        self._left = float(limit)
        self._progressed = now()
        self._waiting: asyncio.Task[None] | None = None
        self.losses = Counter[str]()
        """Losses of each actor, by who it is."""
        self._who: set[str] = set()
        self._node_lost = -math.inf
        self._with_node: dict[str, float] = {}  # who was lost with the node, and when that was noticed first
        self._found_dead = False  # that node, by Ray

    @property
    def left(self) -> int:
        return int(self._left)

    async def again(self, who: str, error: BaseException) -> None:
        """Use one retry and return after its wait; all actors of a lost node use one.

        Raises `OutOfRetries`, and at once `BrokenEnvironment`, which no retry mends.
        """
        _check_environment(error)
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
        self.note(f"{who} was lost ({reason(error)}): trying again, {self.left} of {self._limit} retries are left.")
        self._waiting = asyncio.create_task(asyncio.sleep(wait))
        self._who.clear()
        self._count(who)
        await asyncio.shield(self._waiting)

    def _lost_with_others(self, who: str, error: BaseException) -> bool:
        """Whether another actor of the same lost node was counted, as far as can be known."""
        # an actor that can't be reached is often the first sign that its node is lost
        if not node_died(error) and not isinstance(error, ActorUnavailableError):
            return False
        # actors of one node are missed one after the other; an actor that is missed again was on another node by then,
        # unless Ray has only now found the node dead: until then it starts the replacement there
        now, found_now = self._now(), node_died(error) and not self._found_dead
        again = now - self._with_node.get(who, now) > _CALLS_SECONDS and not found_now
        if again or now - self._node_lost > _NODE_SECONDS:
            self._node_lost, self._with_node, self._found_dead = now, {who: now}, node_died(error)
            return False
        self._found_dead = self._found_dead or found_now
        if found_now:  # whatever was replaced meanwhile may have been there as well
            self._with_node = dict.fromkeys(self._with_node, now)
        self._with_node.setdefault(who, now)
        return True

    def _count(self, who: str) -> None:
        if who not in self._who:
            self._who.add(who)
            self.losses[who] += 1

    def progress(self) -> None:
        """Refill the budget: something was committed."""
        now = self._now()
        self._left = min(self._limit, self._left + min(IDLE_SECONDS, now - self._progressed) / REFILL_SECONDS)
        self._progressed = now


def reason(error: BaseException) -> str:
    """Why a call has no answer, in a few words."""
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
    if isinstance(error, RuntimeEnvSetupError):
        return f"{_node_of(text)} could not make the run's environment: {_kind(text)}"
    if "error raised in its creation task" in text:
        return f"its start failed: {_kind(text)}"
    if "ray.kill" in text:
        return "it was ended"
    return "its process died: killed, out of memory, or crashed"


def _check_environment(error: BaseException) -> None:
    """Raise `BrokenEnvironment` where an actor's process could not import what the driver can."""
    text = str(error) if isinstance(error, RayActorError) else ""
    if missing := _NO_MODULE.search(text):
        lacks = f"has no module {missing[1]}"
    elif other := _OTHER_VERSION.search(text):
        lacks = f"has raypoly {other[1]}, and the driver {other[2]}"
    else:
        return
    raise BrokenEnvironment(
        f"{_node_of(text)} {lacks}. Install there what is installed here, or submit the job with --working-dir; "
        "raypoly doctor looks at every node."
    ) from error


def _kind(text: str) -> str:
    return text.strip().rpartition("\n")[2].partition(":")[0][:100]  # no message: it may hold a password


def _node_of(text: str) -> str:
    return f"node {address}" if (address := _address(text)) else "a node"


def _address(text: str) -> str | None:
    found = _NODE.search(text)
    address = found and (found[1] or found[2])
    # what a node without a default route says of itself; it joined by another address
    return None if address is None or address.startswith("127.") else address


def node_died(error: BaseException) -> bool:
    """Whether an actor was lost with its node, which no program causes."""
    text = str(error)
    return isinstance(error, NodeDiedError) or "node has died" in text or "node was terminated" in text


P = ParamSpec("P")
T = TypeVar("T")
Question = Callable[Concatenate[Any, P], T]
"""A method of an actor's class, such as `LearnerActor.digest`."""

START = "start"
"""The stage of a call that starts an actor, whose pulse stands still while it loads."""


async def result(answer: Awaitable[T]) -> T:
    """The answer of a call. An actor's `RaypolyError` is raised without Ray's wrapper."""
    try:
        return await answer
    except RayTaskError as error:
        if isinstance(error.cause, RaypolyError):
            raise error.cause from error
        raise


async def told(answer: Awaitable[T], lacks: Callable[[], str], note: Callable[[str], None]) -> T:
    """The answer; while there is none, every half minute a note of what it `lacks` (empty: no note)."""
    waits = asyncio.ensure_future(answer)
    wait = min(_FIRST_NOTE_SECONDS, NOTE_SECONDS)
    try:
        while not (await asyncio.wait([waits], timeout=wait))[0]:
            wait, text = NOTE_SECONDS, ""
            with suppress(RayError):  # the head does not answer, which others tell
                text = await asyncio.to_thread(lacks)  # it may let the head's answer wait
            if text:
                note(text)
        return await waits
    finally:
        waits.cancel()


@dataclass(eq=False)
class InFlightCall:
    stage: str
    who: str
    """The actor's name, or another source, such as the storage."""
    actor: Any = None
    since: float = field(default_factory=time.monotonic)
    """Last progress, by `time.monotonic`."""

    def beat(self) -> None:
        self.since = time.monotonic()


class InFlightCalls:
    """The calls that are open now. The watchdog reads them from another thread."""

    def __init__(self) -> None:
        self._open: dict[int, InFlightCall] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self.on_end: Callable[[str, float], None] = lambda stage, seconds: None
        """Called with the stage and the seconds of each call that ends, with or without an answer."""

    @contextmanager
    def waiting(self, stage: str, who: str, actor: Any = None) -> Iterator[InFlightCall]:
        """Keep a call open inside `with`. `beat()` notes a part of the answer."""
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


class UnfitNodes:
    """Nodes that could not make the run's environment, such as those whose disk is full: actors prefer others."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._failed = False

    def take(self, error: BaseException) -> None:
        """Note the node that an error of an actor's start names."""
        if isinstance(error, RuntimeEnvSetupError):
            address, self._failed = _address(str(error)), True
            self._ids |= {node["NodeID"] for node in ray.nodes() if node["NodeManagerAddress"] == address}

    def elsewhere(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of an actor. Where there is no other node, it is tried there again."""
        strategy = options.get("scheduling_strategy")
        if not self._failed or isinstance(strategy, PlacementGroupSchedulingStrategy):
            return {**options}
        # a node that Ray does not name is left by trying them in turn
        others = NodeLabelSchedulingStrategy({}, soft={"ray.io/node-id": NotIn(*self._ids)}) if self._ids else "SPREAD"
        return {**options, "scheduling_strategy": others}


@dataclass(frozen=True)
class CallContext:
    """What all actor clients in the driver share."""

    retries: Retries = field(default_factory=Retries)
    in_flight: InFlightCalls = field(default_factory=InFlightCalls)
    unfit: UnfitNodes = field(default_factory=UnfitNodes)

    async def again(self, who: str, error: BaseException) -> None:
        """As `Retries.again`; replacements avoid a node whose environment an actor could not start in."""
        self.unfit.take(error)
        await self.retries.again(who, error)


class ReplacedActor(ABC):
    """The client of one actor, whose calls are made again of a replacement when it is lost."""

    _lost: ClassVar[tuple[type[Exception], ...]] = LOST
    _retry_seconds = 0.0
    """Seconds to wait beside those of the retry budget before an actor that was lost at its start is replaced."""

    def __init__(self, who: str, context: CallContext | None = None) -> None:
        self.who = who
        """Its name for retries and stalls, which replacements keep."""
        self.started = 0
        self._context = context or CallContext()
        self._actor: Any = None
        self._lock = asyncio.Lock()

    @abstractmethod
    def _launch(self) -> Any:
        """Start an actor, named `_next_name`. Its method `setup` makes it ready."""

    def _set_up(self) -> Awaitable[Any]:
        answer: Awaitable[Any] = self._actor.setup.remote()
        return answer

    async def _made_ready(self) -> None:  # noqa: B027  (most need nothing)
        """What else a new actor needs before it is asked."""

    async def start(self) -> None:
        """Start the actor and wait until it is ready. Raises the errors of its `setup`."""
        while True:
            self.started += 1
            self._actor = self._launch()
            try:
                await self._once(START, lambda actor: self._set_up())
                return await self._made_ready()
            except self._lost as error:
                self.stop()
                await self._context.again(f"The {self.who}", error)
                await asyncio.sleep(self._retry_seconds)

    @property
    def actors(self) -> dict[str, Any]:
        return {} if self._actor is None else {self.who: self._actor}

    def stop(self) -> None:
        if self._actor is not None:
            ray.kill(self._actor)

    @property
    def _next_name(self) -> str:
        return self.who if self.started == 1 else f"{self.who}-{self.started}"

    async def _call(self, stage: str, ask: Callable[[Any], Awaitable[T]]) -> T:
        async with self._lock:
            if self._actor is None:
                await self.start()
        return await self._retried(lambda: self._once(stage, ask))

    async def _once(self, stage: str, ask: Callable[[Any], Awaitable[T]]) -> T:
        with self._context.in_flight.waiting(stage, self.who, self._actor):
            return await result(ask(self._actor))

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            generation = self.started
            try:
                return await call()
            except self._lost as error:
                await self._replace(generation, error)

    async def _replace(self, generation: int, error: BaseException) -> None:
        # Once for all the calls that the old actor took with it.
        async with self._lock:
            if self.started == generation:
                self.stop()
                await self._context.again(f"The {self.who}", error)
                await self.start()
