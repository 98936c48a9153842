"""The actors that run reward functions and terms of a user's own, beside the step.

    valued = await workers.outcome(answered)           # `Valued`: outcomes, and other numbers that the function gave
    terms = await workers.terms(answered)              # float64 [N] by name

A sync function runs one call at a time in each process, an async one many. A function that can't reach its server, or
takes longer than `reward.timeout`, is tried again, then raises `Away`: the run pauses.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import ray

from actors.calls import CallContext, ReplacedActor
from actors.watched import Pulse, Watched, all_stacks, of_run
from raypoly.core.config import Config
from raypoly.core.errors import Away, RaypolyError
from raypoly.core.values import Float64
from raypoly.verifier.rewards import AnsweredGroup, Rewards
from raypoly.verifier.rewards.reward_function import Valued
from raypoly.verifier.rewards.terms import NamedTerm
from raypoly.verifier.rewards.user_errors import Overtime, away_reason, told

TRIES = 3
WAIT_SECONDS = 0.5
"""Seconds before the second try; twice that before the third."""
_WAITING = 4096  # open calls of an actor


class RewardActor(Watched):
    def __init__(self, config: Config) -> None:
        self._config = config
        self._thread = ThreadPoolExecutor(1)
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return of_run("Reward")

    async def setup(self) -> None:
        """Import the functions. An error fails this call; the actor lives on."""
        self._rewards = Rewards.of_run(self._config)

    async def pulse(self) -> Pulse:
        return self._pulse()

    async def stacks(self) -> str:
        return all_stacks()

    async def outcome(self, answered: AnsweredGroup) -> Valued:
        with told():
            return await self._rewards.outcome.values(answered, self._call)

    async def terms(self, answered: AnsweredGroup) -> dict[str, Float64]:
        """Of the user's own terms."""
        with told():
            own = [term for term in self._rewards.terms.values() if term.own and term.may_say(answered)]
            return {term.name: await self._call(term.values, answered) for term in own}

    async def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        outcome = self._rewards.outcome
        owner = getattr(function, "__self__", None)
        term = owner if isinstance(owner, NamedTerm) else None
        asked = outcome.name if term is None else f"reward.terms.{term.name}"
        for attempt in range(TRIES):
            try:
                return await self._once(partial(function, *args, **kwargs), term is None and outcome.is_async)
            except RaypolyError:
                raise
            except Exception as error:
                if (why := away_reason(error)) is None:
                    raise
                if attempt + 1 == TRIES:
                    raise Away(f"{asked}: {why}") from error
            finally:
                self.beat()
            await asyncio.sleep(WAIT_SECONDS * 2**attempt)
        raise AssertionError("the loop returns or raises")

    async def _once(self, asks: Callable[[], Any], is_async: bool) -> Any:
        """Raises `Overtime`, and what the function raises."""
        if is_async:
            return await self._in_time(asks())
        async with self._turn:
            running = asyncio.get_running_loop().run_in_executor(self._thread, _sealed, asks)
            try:
                found = await self._in_time(running)
            except Overtime:
                self._thread = ThreadPoolExecutor(1)  # the old one's thread still waits
                raise
        return await self._in_time(found) if inspect.isawaitable(found) else found

    async def _in_time(self, asking: Awaitable[Any]) -> Any:
        seconds = self._config.reward.timeout
        done, _ = await asyncio.wait([task := asyncio.ensure_future(asking)], timeout=seconds)
        if done:
            return await task
        task.cancel()
        raise Overtime(f"no answer within reward.timeout={seconds:g} s")


def _sealed(asks: Callable[[], Any]) -> Any:
    try:
        return asks()
    except StopIteration as error:  # which no future may hold
        raise RuntimeError("the function raised StopIteration") from error


class _RewardClient(ReplacedActor):
    """One of the actors."""

    def __init__(self, number: int, config: Config, options: dict[str, Any], context: CallContext | None) -> None:
        super().__init__(f"reward-{number}", context)
        self._arguments, self._options = config, options

    async def ask(self, method: str, answered: AnsweredGroup) -> Any:
        return await self._call("reward", lambda actor: getattr(actor, method).remote(answered))

    def _launch(self) -> Any:
        actor = ray.remote(max_concurrency=_WAITING)(RewardActor)
        options = self._context.unfit.elsewhere(self._options)
        return actor.options(name=self._next_name, **options).remote(self._arguments)


class RewardWorkers:
    """`reward.workers` actors. A group's responses are shared out among them, so that a slow function of a group is as
    many times as fast."""

    def __init__(
        self, config: Config, rewards: Rewards, options: dict[str, Any], context: CallContext | None = None
    ) -> None:
        self._clients = [_RewardClient(i, config, options, context) for i in range(config.reward.workers)]
        self._whole = rewards.outcome.form == "trl"  # its one call sees all of a group's responses
        self._next = 0
        self._sending = asyncio.Lock()

    async def start(self) -> None:
        await asyncio.gather(*(client.start() for client in self._clients))

    def stop(self) -> None:
        for client in self._clients:
            client.stop()

    @property
    def actors(self) -> dict[str, Any]:
        return {name: actor for client in self._clients for name, actor in client.actors.items()}

    async def outcome(self, answered: AnsweredGroup) -> Valued:
        """Outcomes of a group's responses. Raises `Away`, and what the function raises as `RaypolyError`."""
        shares = [range(answered.size)] if self._whole else self._shares(answered.size)
        parts = await asyncio.gather(*(self._ask("outcome", answered.of(share)) for share in shares))
        outcome = np.full(answered.size, np.nan)
        numbers = {name: np.full(answered.size, np.nan) for part in parts for name in part.parts}
        for share, part in zip(shares, parts, strict=True):
            outcome[list(share)] = part.outcome
            for name, values in part.parts.items():
                numbers[name][list(share)] = values
        return Valued(outcome, numbers)

    async def terms(self, answered: AnsweredGroup) -> Mapping[str, Float64]:
        """The user's own terms of a group, float64 [N] by name. Raises as `outcome`."""
        found: Mapping[str, Float64] = await self._ask("terms", answered)
        return found

    def _shares(self, size: int) -> Sequence[range]:
        count = min(size, len(self._clients))
        return [range(first, size, count) for first in range(count)]

    async def _ask(self, method: str, answered: AnsweredGroup) -> Any:
        client = self._clients[self._next]
        self._next = (self._next + 1) % len(self._clients)
        async with self._sending:  # groups may come all at once: one is pickled in a turn of the event loop
            await asyncio.sleep(0)
        return await client.ask(method, answered)
