"""What all arms of `benchmarks.step` have in common, and what one step of an arm says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Setting:
    """Of a step: the sizes and rates of configs/tiny.yaml."""

    model: Path
    prompts: int = 20
    rollouts: int = 8
    max_tokens: int = 56
    temperature: float = 1.0
    lr: float = 3e-4
    workers: int = 2
    """Sandboxes."""
    trl_threads: int = 2
    """Compute threads of TRL's one process; raypoly's engine and learner have one each, in processes of their own."""

    @property
    def sequences(self) -> int:
        return self.prompts * self.rollouts


@dataclass(frozen=True)
class Step:
    """One step, or one update."""

    seconds: float
    sampled: int
    """Responses that there were."""
    trained: int
    """Responses whose tokens entered the loss."""
    tokens: int
    """Those tokens."""
    reward: float | None = None
    """Mean of the responses; None where the update alone is measured."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds in which a stage was busy; stages may overlap."""
    grad_norm: float | None = None
    """Before clipping, of an update from the starting weights; None for any other."""
