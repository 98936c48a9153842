"""What a whole step costs the driver itself, over services that sleep: CPU, time, memory.

    python -m tests.support.driver_cost 1024 16 1000 1000     # groups, rollouts, scorers, tokens: prints JSON
    python -m tests.support.driver_cost 1024 16 1000 1000 by-token     # with one advantage a token

All of it is the product's own: requests, groups through the scorer pool, the judge's stage, advantages, rows for the
learner, records and rollout file on a real disk, metrics. What the services hand over is as large as a true one's:
tokens with log-probabilities, a text of prose with a program in it, verdicts with evidence. Making it is counted too.
A virtual clock lets the services' seconds pass at once, so that the time is the driver's and its disk's.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from raypoly.algorithms.objectives import Credit, ScoredGroup
from raypoly.algorithms.objectives.poly_epo import PolyEPO
from raypoly.core.values import Evidence, Problem, Rollout, Verdict
from raypoly.rollouts.engines import SampleRequest
from tests.support.process_costs import largest_resident_bytes
from tests.support.service_times import Times
from tests.support.timed_run import close_run, open_timed_run, timed_config, timed_problems
from tests.support.timed_services import (
    TimedActors,
    TimedGenerator,
    TimedScorer,
    TimedScorers,
    read_seconds,
)
from tests.support.virtual_clock import VirtualLoop
from workflows.train import Training

_AT_ONCE = 256
"""Responses that are decoded beside each other."""
_PROSE = "First we look at every value once and keep what the answer needs, so that no pair is seen twice.\n"
_LINE = "    total = total + values[place] if place in values else total\n"
_CHARACTERS = 3.5
"""Of a token."""
_FEATURES = (("depth_1", "hash"), ("depth_2",), ("dp", "depth_1"), ("depth_1", "sort", "two_pointers"))
_VOCABULARY = 150_000


@dataclass(frozen=True)
class DriverCost:
    """One step."""

    rollouts: int
    cpu: float
    """User and system seconds of the process, all its threads."""
    wall: float
    """Seconds."""
    before: int
    peak: int
    """The process's largest resident size in bytes: before the step, and with it."""

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of CPU a rollout."""
        return 1000 * self.cpu / self.rollouts


class ByToken(PolyEPO):
    """Poly-EPO whose advantages are given token by token."""

    def compute(self, group: ScoredGroup) -> Credit:
        assert group.lengths is not None
        rng, found = np.random.default_rng(0), super().compute(group)
        noise = (rng.random(tokens, np.float32) for tokens in group.lengths.tolist())
        return Credit([(number + each).astype(np.float32) for number, each in zip(found, noise, strict=True)])


def measure_driver(
    folder: Path, groups: int, rollouts: int, scorers: int, tokens: int, by_token: bool = False
) -> DriverCost:
    """One step of `groups` groups of `rollouts` rollouts of `tokens` tokens, with so many scorer actors. `by_token`:
    each with one advantage a token.

    Its run is in the folder.
    """
    times = Times.drawn(0, _AT_ONCE, groups, rollouts)
    own = ["objective.name=tests.support.driver_cost:ByToken"] if by_token else []
    config = timed_config(groups, rollouts, scorers, f"generator.max_tokens={tokens}", *own)

    async def main() -> DriverCost:
        opened = await open_timed_run(
            folder,
            times,
            config=config,
            generator=_LongResponses(times, tokens),
            scorers=_EvidenceScorers(config.scorer, {}),
            problems=[replace(each, answer="fenced", prefix="") for each in timed_problems(groups)],
        )
        training, before = Training(opened), largest_resident_bytes(os.getpid())
        cpu, wall = time.process_time(), time.perf_counter()
        await training.step(0)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        await close_run(opened)
        return DriverCost(groups * rollouts, cpu, wall, before, largest_resident_bytes(os.getpid()))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


class _LongResponses(TimedGenerator):
    """Responses of so many tokens: prose, then a program in a fence."""

    def __init__(self, times: Times, tokens: int) -> None:
        super().__init__(times, False)
        self._tokens, self._rng = tokens, np.random.default_rng(0)
        half = int(tokens * _CHARACTERS / 2)
        self._prose, self._lines = _PROSE * (half // len(_PROSE)), _LINE * (half // len(_LINE))

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        async for slot, rollouts in super().sample(requests):
            yield slot, tuple(map(self._lengthened, rollouts))

    def _lengthened(self, rollout: Rollout) -> Rollout:
        return replace(
            rollout,
            tokens=self._rng.integers(0, _VOCABULARY, self._tokens, np.int32),
            logprobs=-self._rng.random(self._tokens, np.float32),
            text=f"{self._prose}```python\ndef f(values):\n{rollout.text}{self._lines}    return total\n```\n",
        )


class _EvidenceScorer(TimedScorer):
    """Its verdicts bring evidence."""

    async def score(self, problem: Problem, suite: Any, codes: Sequence[str]) -> list[Verdict]:
        found = await super().score(problem, suite, codes)
        return [replace(verdict, evidence=_evidence(code)) for verdict, code in zip(found, codes, strict=True)]


class _EvidenceActors(TimedActors):
    timed = _EvidenceScorer


class _EvidenceScorers(TimedScorers):
    """The pool over such scorers."""

    actors_class = _EvidenceActors


def _evidence(code: str) -> Evidence:
    features = _FEATURES[int(1e4 * read_seconds("run", code)) % len(_FEATURES)]
    return Evidence(code, ("for", "if"), {"for": 40.0, "if": 0.0}, "for", features)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        measure_driver(Path(folder) / "tiny", 2, 8, 2, 8)  # modules are loaded, once a process
        sizes = map(int, sys.argv[1:5])
        print(json.dumps(asdict(measure_driver(Path(folder) / "run", *sizes, by_token=sys.argv[5:] == ["by-token"]))))
