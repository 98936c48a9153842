"""The actors of a run, each behind its client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from actors.calls import CallContext
from actors.generator import Generator
from actors.judge import JudgeClient
from actors.reward_workers import RewardWorkers
from actors.scorer_pool import ScorerPool
from actors.stage_model import StageModelClient
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
    rewards: RewardWorkers
    models: Mapping[str, StageModelClient] = field(default_factory=dict)
    """Models that stages ask, by stage."""

    async def start(self, around: Around, judging: bool, scoring: bool, rewarding: bool, sleeps: bool) -> None:
        """Start the actors. `sleeps`: engine and learner share a device. Models of stages and judge come first: engines
        measure the free memory."""
        for stage, model in self.models.items():
            await around(f"{stage}, started", model.start())
        judge = [around("judge, started", self.judge.start())] if judging else []
        if self.judge.in_engine and judge:
            await judge.pop()
        sandbox = [around("sandbox, started", self.scorers.start())] if scoring else []
        reward = [around("reward functions, started", self.rewards.start())] if rewarding else []
        await asyncio.gather(*judge, *sandbox, *reward, self._policy(around, sleeps))

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
        asked = (self.judge, self.rewards, *self.models.values())
        services: tuple[Any, ...] = (self.generator, self.scorers, *asked, self.learner)
        return {name: actor for service in services for name, actor in service.actors.items()}
