"""The contract of a gate: how likely it is that a plan is a valid one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from raypoly.core.values import Draft, Float64, Problem


class GateConfig(BaseModel):
    """The base of a gate's parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    tau: float | None = Field(
        None,
        ge=0,
        le=1,
        description="A plan is accepted from this probability on (J = 1). Default: 0.5; for `model` its own.",
    )


class GateAnswers(NamedTuple):
    """What a gate says about D plans."""

    p: Float64
    """[D]: the probability that a plan is valid."""
    mass: Float64
    """[D]: the probability that a gate's model gives its two words together; NaN where no model was asked."""


class WordProbabilities(Protocol):
    """A gate's model, wherever it runs."""

    async def ask(self, problem: Problem, plans: Sequence[str]) -> GateAnswers:
        """What it says about each plan."""
        ...


class Gate(ABC):
    """One way to accept plans. Subclasses write `probabilities`."""

    Config: ClassVar[type[GateConfig]] = GateConfig
    model: WordProbabilities | None = None
    """What answers for the model of a gate that has one: an actor's client. The run sets it."""

    def __init__(self, config: GateConfig) -> None:
        self.config = config

    @property
    def tau(self) -> float:
        """A plan is accepted from this probability on."""
        return 0.5 if self.config.tau is None else self.config.tau

    @abstractmethod
    async def probabilities(self, problem: Problem, drafts: Sequence[Draft], methods: int) -> Float64:
        """p of each draft, float64 [D]. `methods` (K): how many a plan should have.

        Raise `Away` while a server is away: the run pauses. Nobody's absence is a refusal.
        """

    async def answers(self, problem: Problem, drafts: Sequence[Draft], methods: int) -> GateAnswers:
        """The same with the mass of a model."""
        return GateAnswers(await self.probabilities(problem, drafts, methods), np.full(len(drafts), np.nan))
