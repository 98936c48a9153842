"""What is added up over a step's micro-batches, on each rank and then over ranks."""

from __future__ import annotations

from dataclasses import dataclass, field

from raypoly.losses.loss import Loss
from raypoly.losses.loss_sums import LossSums
from raypoly.losses.loss_tokens import Tokens


@dataclass
class Totals:
    """Sums; means are taken when all ranks' are together."""

    loss: float = 0.0
    entropy: float = 0.0
    """Nats, over tokens."""
    sums: LossSums = field(default_factory=LossSums)
    rows: int = 0
    tokens: int = 0

    def add(self, tokens: Tokens, loss: Loss, value: float) -> None:
        """Take in a micro-batch whose part of the step's loss is `value`."""
        self.loss += value
        self.entropy += float(tokens.entropy_T.detach().sum())
        self.sums.add(tokens, loss)
        self.rows += len(tokens.length_S)
        self.tokens += len(tokens.logp_T)

    def merge(self, other: Totals) -> None:
        """Take in another rank's."""
        self.loss += other.loss
        self.entropy += other.entropy
        self.sums.merge(other.sums)
        self.rows += other.rows
        self.tokens += other.tokens
