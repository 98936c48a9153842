"""Outcome-based exploration: a bonus for outcomes that a problem has seldom had.

    A_i = r_i - mean r + c * b_i

    ucb_con    b_i = u_i - b0          u_i = min(1, 1 / sqrt(n(x, a_i))), n over all earlier steps of this run
    ucb_mean   b_i = u_i - mean u
    naive      b_i = u_i
    batch      b_i = -(1/N) * #{j != i: a_j = a_i}, within the group alone

Arxiv 2509.06941, whose outcome is the final answer of a mathematics problem. Here it is what the program did
(`behaviour.outcome_of`): all that pass are one outcome; wrong ones are told apart by the first test they fail and what
they gave there; no program and timeouts are outcomes too. A judge's ids would not do: they mean nothing across steps.
Counts are of the steps before, and the group is counted after; an outcome never seen has u = 1.

Needs outcomes and the problem's id; no judge. When: many problems are still unsolved, where trying other wrong answers
is what finds a right one. Counts are kept by problem, in `state_dict`.
Known to go wrong: it tells no two strategies apart that pass, so it does not keep solutions diverse; every new way to
crash is paid once; `naive` pays all and `ucb_con` shifts all that is new or old, so advantages do not add to zero and a
solved group keeps a gradient. The table grows with each new outcome of each problem. Calling it twice counts twice.
A group may have any size, and is counted as it is.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.objective import Credit, Objective, ObjectiveConfig, ScoredGroup
from raypoly.core.values import Float64


class OutcomeExplorationConfig(ObjectiveConfig):
    bonus: Literal["ucb_con", "ucb_mean", "naive", "batch"] = Field(
        "ucb_con",
        description="A rare outcome's worth: by history against b0, against the group's mean, or as it is; "
        "`batch` looks at the group alone.",
    )
    c: float = Field(0.2, ge=0, description="The bonus in rewards.")
    b0: float = Field(0.5, ge=0, le=1, description="What `ucb_con` takes off.")


class OutcomeExploration(Objective):
    Config = OutcomeExplorationConfig
    config: OutcomeExplorationConfig
    needs = frozenset({"outcomes", "problem"})

    def __init__(self, config: OutcomeExplorationConfig) -> None:
        super().__init__(config)
        self._counts: dict[str, Counter[str]] = {}

    def compute(self, group: ScoredGroup) -> Credit:
        """Measures `bonus`, c * b in the mean, and `unseen`: the share of rollouts with an outcome that the problem
        never had."""
        assert group.outcomes is not None
        assert group.problem is not None
        seen = self._counts.get(group.problem, Counter())
        bonus = self._bonus(seen, group.outcomes)
        measures = {"bonus": float(self.config.c * bonus.mean())}
        if self.config.bonus != "batch":
            measures["unseen"] = sum(not seen[outcome] for outcome in group.outcomes) / group.size
            self._counts.setdefault(group.problem, Counter()).update(group.outcomes)
        return Credit(group.rewards - group.rewards.mean() + self.config.c * bonus, measures=measures)

    def _bonus(self, seen: Counter[str], outcomes: tuple[str, ...]) -> Float64:
        """b, float64 [N]."""
        if self.config.bonus == "batch":
            here = Counter(outcomes)
            return np.array([-(here[outcome] - 1) / len(outcomes) for outcome in outcomes])
        ucb = np.array([1.0 / np.sqrt(max(seen[outcome], 1)) for outcome in outcomes])
        if self.config.bonus == "naive":
            return ucb
        out: Float64 = ucb - (self.config.b0 if self.config.bonus == "ucb_con" else ucb.mean())
        return out

    def state_dict(self) -> dict[str, Any]:
        return {"counts": {problem: dict(counts) for problem, counts in self._counts.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._counts = {problem: Counter(counts) for problem, counts in state["counts"].items()}
