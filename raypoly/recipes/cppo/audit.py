"""Audit before joint training: do a planner's plans give it anything to learn from (arXiv 2605.27000)?

found = PlanAudit.of(outcomes=[[1, 0], [0, 0]], accepted=[1, 1], p=[.9, .6])
found.passes, found.go_back_to, found.auc
PlanAudit.read(Path("out/audit-s0"))                  # of a run's folder
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from raypoly.analysis.experiments.command_result import RESULT_KEY, CommandResult
from raypoly.recipes.cppo.gate_validation import auc
from raypoly.run.store import open_store

TITLE = "Audits (docs/cppo.md), of training problems"
AUDITED = 64
"""Training problems; all of them where there are fewer."""


@dataclass(frozen=True)
class PlanAudit:
    """Of M tuples of K attempts, over all problems."""

    pass_at_k: float
    """Share of tuples of which an attempt passed."""
    accepted: float
    """Share that the gate accepts."""
    density: float
    """Share with R_plan > 0: both."""
    least_pass: float = 0.0
    least_density: float = 0.0
    auc: float | None = None
    """Of the gate's p against whether an attempt passed. None where p is unknown, or all tuples or none passed."""

    @classmethod
    def of(
        cls,
        outcomes: Sequence[ArrayLike],
        accepted: ArrayLike,
        least_pass: float = 0.0,
        least_density: float = 0.0,
        p: ArrayLike | None = None,
    ) -> Self:
        """From rewards of attempts, [M][K], J, [M], and perhaps p, [M]. Raises `ValueError` for none."""
        passed = np.array([np.max(np.asarray(each)) > 0 for each in outcomes])
        gate = np.asarray(accepted).astype(bool)
        if not len(passed) or passed.shape != gate.shape:
            raise ValueError(f"an audit needs tuples, each with J: got {len(passed)} tuples and J of {gate.shape}")
        found = float(passed.mean()), float(gate.mean()), float((passed & gate).mean())
        return cls(*found, least_pass, least_density, None if p is None else auc(p, passed))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """None where a run's folder has none yet. Raises `UsageError` where it is damaged."""
        if not (folder / RESULT_KEY).exists():
            return None
        found = CommandResult.read(open_store(folder, make=False))
        return None if found is None else cls(**{name: found.numbers[name] for name in cls.__dataclass_fields__})  # type: ignore[arg-type]

    @property
    def passes(self) -> bool:
        return self.pass_at_k > self.least_pass and self.density > self.least_density

    @property
    def go_back_to(self) -> str | None:
        """The stage to repeat: gate and warm-up where fewer plans are accepted than solved, else `sft`."""
        if self.passes:
            return None
        return "gate and warm_up" if self.accepted < self.pass_at_k else "sft"

    @property
    def parts(self) -> Mapping[str, float]:
        """Shares by gate and outcome, which add up to 1."""
        solved, failed = self.density, self.accepted - self.density
        return {
            "accepted_solved": solved,
            "accepted_failed": failed,
            "rejected_solved": self.pass_at_k - solved,
            "rejected_failed": max(0.0, 1 - self.pass_at_k - failed),
        }

    @property
    def pass_if_accepted(self) -> float | None:
        """None where no tuple is accepted."""
        return self.density / self.accepted if self.accepted > 0 else None

    @property
    def pass_if_rejected(self) -> float | None:
        """None where no tuple is rejected."""
        return (self.pass_at_k - self.density) / (1 - self.accepted) if self.accepted < 1 else None

    def result(self, problems: int, weights: str | None = None) -> CommandResult:
        """`problems`: how many were audited; `weights`: the digest of the planner's."""
        rates = {"pass_if_accepted": self.pass_if_accepted, "pass_if_rejected": self.pass_if_rejected}
        numbers = {"problems": problems, **asdict(self), **rates, **self.parts}
        return CommandResult("audit-plans", TITLE, numbers, str(self), self.go_back_to, weights)

    def __str__(self) -> str:
        return (
            f"{self.pass_at_k:.3f} of the tuples passed, {self.accepted:.3f} were accepted, {self.density:.3f} were "
            "both"
        )
