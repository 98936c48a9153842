"""Conversations of a step over an engine that is never full, and tools that take seconds, on a virtual clock.

found = measure_turns("free", seed=0)
found.seconds / found.longest
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from actors.engine_actor import Feed
from actors.model_files import Continuation, Observed
from raypoly.core.settings import load
from raypoly.core.values import Problem, Rollout, TestSuite, Verdict
from raypoly.rollouts.engines import SampleRequest
from raypoly.rollouts.environments import Conversation, Done, Environment, EnvironmentConfig, Observation
from raypoly.rollouts.environments.observation_template import ObservationTemplate
from tests.support.virtual_clock import run_virtual
from workflows.step.conversations import Conversations, Opening

GROUPS, ROLLOUTS, TURNS = 32, 8, 5
DECODE, TOOL = (1.0, 6.0), (0.0, 10.0)
"""Seconds of a turn's decoding, and of the tool that answers it."""


@dataclass(frozen=True)
class TimedTurns:
    seconds: float
    """Of the sampling phase."""
    longest: float
    """Of the conversation that takes longest, by itself."""


class _Engine:
    def __init__(self, spent: dict[str, float]) -> None:
        self.spent = spent

    async def sample(
        self, requests: Sequence[SampleRequest], feed: Feed | None = None
    ) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        done, open_ = asyncio.Queue[tuple[int, tuple[Rollout, ...]] | None](), 0
        tasks: set[asyncio.Task[None]] = set()

        async def decode(request: SampleRequest) -> None:
            made = await asyncio.gather(*(self._turn(request, seed) for seed in request.seeds))
            done.put_nowait((request.slot, tuple(made)))

        async def take() -> None:
            while feed is not None and (request := await feed.get()) is not None:
                tasks.add(asyncio.create_task(decode(request)))
            done.put_nowait(None)

        for request in requests:
            tasks.add(asyncio.create_task(decode(request)))
            open_ += 1
        taking = asyncio.create_task(take()) if feed is not None else None
        while taking is not None or open_:
            found = await done.get()
            if found is None:
                return
            open_ -= 1
            yield found

    async def _turn(self, request: SampleRequest, seed: int) -> Rollout:
        name = str(request.prompt_tokens[0])
        took = np.random.default_rng(seed).uniform(*DECODE)
        self.spent[f"{name}"] += took
        await asyncio.sleep(took)
        tokens = np.array([seed % 1009], np.int32)
        return Rollout(request.prompt_tokens, tokens, np.zeros(1, np.float32), name, "stop", seed, 0)

    async def takes_more(self) -> bool:
        return True

    async def continuation(self, observed: Observed) -> Continuation:
        return Continuation(np.array([1], np.int32), observed.text, False)


class _Tools(Environment):
    def __init__(self, spent: dict[str, float]) -> None:
        super().__init__(EnvironmentConfig())
        self.spent = spent

    async def respond(self, problem: Problem, conversation: Conversation, services: Any) -> Observation | Done:
        name, turn = conversation.text, len(conversation.own)
        rng = np.random.default_rng([int(name), turn])
        if turn > int(name) % TURNS:
            return Done()
        took = rng.uniform(*TOOL)
        self.spent[name] += took
        await asyncio.sleep(took)
        return Observation("go on")


def measure_turns(how: str, seed: int) -> TimedTurns:
    """`how`: of `generator.turns`."""
    config = load(
        None, ["environment.name=python", f"environment.max_turns={TURNS + 1}", f"generator.turns={how}"], str
    )
    spent: dict[str, float] = defaultdict(float)

    async def score(problem: Problem, code: str | None) -> Verdict:
        raise AssertionError("nothing is run")

    engine: Any = _Engine(spent)
    template = ObservationTemplate.of_section(config.environment, None)
    talks = Conversations(config, _Tools(spent), engine, score, template)
    openings = []
    for number in range(GROUPS * ROLLOUTS):  # each with a prompt of its own, which is its name
        request = SampleRequest(number, np.array([seed * 10_000 + number], np.int32), (seed * 10_000 + number,))
        problem = Problem(f"p{number}", "", "f", TestSuite("none", ""))
        openings.append(Opening(request, problem, number, (0,)))

    async def work() -> float:
        begun = asyncio.get_running_loop().time()
        async for _ in talks.sample(openings, {}):
            pass
        return asyncio.get_running_loop().time() - begun

    return TimedTurns(run_virtual(work()), max(spent.values()))
