"""The setting that all arms of `benchmarks.step` share."""

from __future__ import annotations

from dataclasses import dataclass
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
