"""The actors of a run, each behind its client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from actors.calls import CallContext
from actors.gate import GateClient
from actors.generator import Generator
from actors.judge import JudgeClient
from actors.scorer_pool import ScorerPool
from workflows.step.learner_session import LearnerSession
from workflows.step.skipped_groups import SkippedGroups

Around = Callable[[str, Awaitable[None]], Awaitable[None]]
"""Waits for a service that starts, and may watch how it does."""


@dataclass
class Services:
    """What samples, scores, judges and learns, and what their calls share."""

    generator: Generator
    learner: LearnerSession
    scorers: ScorerPool
    judge: JudgeClient
    skipped: SkippedGroups
    """Counts the groups whose tests can't be run."""
    context: CallContext
    """The retries and the calls in flight."""
    gate: GateClient | None = None
    """Of a gate that is a model; None in a run without one."""

    async def start(self, around: Around, judging: bool, scoring: bool, sleeps: bool) -> None:
        """Start the run's actors. `judging`: whether it asks its judge; `scoring`: whether any program is run;
        `sleeps`: whether engine and learner share a device. The gate comes first: engines on its device measure the
        free memory."""
        if self.gate is not None:
            await around("gate, started", self.gate.start())
        judge = [around("judge, started", self.judge.start())] if judging else []
        sandbox = [around("sandbox, started", self.scorers.start())] if scoring else []
        await asyncio.gather(*judge, *sandbox, self._policy(around, sleeps))

    async def _policy(self, around: Around, sleeps: bool) -> None:
        """Start engines and learner. On a shared device the engine comes first, since it measures the free memory."""
        what = "engine" if self.generator.samples else "tokenizer"
        engine = around(f"{what}, started", self.generator.start())
        if not sleeps:
            await asyncio.gather(engine, around("learner, started", self.learner.start()))
            return
        await engine
        await self.generator.rest()
        await around("learner, started", self.learner.start())

    def actors(self) -> Mapping[str, Any]:
        """The actors there are now, by name."""
        gate = {} if self.gate is None else self.gate.actors
        return {**self.generator.actors, **self.scorers.actors, **self.judge.actors, **gate, **self.learner.actors}
