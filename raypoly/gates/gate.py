"""The contract of a gate: how likely it is that a plan is a valid one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from raypoly.values import Draft, Float64, Problem


class GateConfig(BaseModel):
    """The base of a gate's parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    tau: float = Field(0.5, ge=0, le=1, description="A plan is accepted from this probability on (J = 1).")


class Gate(ABC):
    """One way to accept plans. Subclasses write `probabilities`."""

    Config: ClassVar[type[GateConfig]] = GateConfig

    def __init__(self, config: GateConfig) -> None:
        self.config = config

    @abstractmethod
    async def probabilities(self, problem: Problem, drafts: Sequence[Draft], methods: int) -> Float64:
        """p of each draft, float64 [D]. `methods` (K): how many a plan should have.

        Raise `Away` while a server is away: the run pauses. Nobody's absence is a refusal.
        """
