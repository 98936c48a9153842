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
from workflows.step.training_group import SkippedGroups

Around = Callable[[str, Awaitable[None]], Awaitable[None]]
"""Waits for a service that starts, and may watch it."""


@dataclass
class Services:
    """The clients of a run's actors."""

    generator: Generator
    learner: LearnerSession
    scorers: ScorerPool
    judge: JudgeClient
    skipped: SkippedGroups
    context: CallContext
    gate: GateClient | None = None
    """None without a gate that is a model."""

    async def start(self, around: Around, judging: bool, scoring: bool, sleeps: bool) -> None:
        """Start the actors. `sleeps`: engine and learner share a device. The gate comes first: engines measure the free
        memory."""
        if self.gate is not None:
            await around("gate, started", self.gate.start())
        judge = [around("judge, started", self.judge.start())] if judging else []
        sandbox = [around("sandbox, started", self.scorers.start())] if scoring else []
        await asyncio.gather(*judge, *sandbox, self._policy(around, sleeps))

    async def _policy(self, around: Around, sleeps: bool) -> None:
        what = "engine" if self.generator.samples else "tokenizer"
        engine = around(f"{what}, started", self.generator.start())
        if not sleeps:
            await asyncio.gather(engine, around("learner, started", self.learner.start()))
            return
        await engine
        await self.generator.rest()
        await around("learner, started", self.learner.start())

    def actors(self) -> Mapping[str, Any]:
        gate = {} if self.gate is None else self.gate.actors
        return {**self.generator.actors, **self.scorers.actors, **self.judge.actors, **gate, **self.learner.actors}
