"""A gate's rows from a preparation: plans that are known, and plans of planners that the judge has labelled.

rows = GatePlans.of(problems, outcomes, written, config, seed)
rows.train, rows.held_out          # balanced, and of different problems; None where a kind is missing
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Problem
from raypoly.data.preparing.prepare_config import PlansConfig
from raypoly.recipes.cppo.gates.gate_rows import LabelledPlan, balance
from raypoly.recipes.cppo.plan_proposals import PlanOutcome
from raypoly.recipes.cppo.wrong_plans import known_plans


@dataclass(frozen=True)
class JudgedPlan:
    """A planner's plan for a training problem, and what the judge said."""

    problem_id: str
    plan: str
    valid: bool | None
    """Whether each of its methods is one that a gold plan could have; None where the judge gave no usable answer."""


@dataclass(frozen=True)
class GatePlans:
    """The plans of both files."""

    judged: tuple[JudgedPlan, ...]
    train: tuple[LabelledPlan, ...] = ()
    held_out: tuple[LabelledPlan, ...] = ()
    why_none: str = ""
    """Why there are no rows; empty where there are."""

    @classmethod
    def of(
        cls,
        problems: Mapping[str, Problem],
        outcomes: Sequence[PlanOutcome],
        judged: Sequence[JudgedPlan],
        config: PlansConfig,
        seed: int,
    ) -> Self:
        """`problems`: those that have outcomes or judged plans, by id."""
        parts = []
        for held_out in (False, True):
            here = [it for it in outcomes if is_held_out(it.problem_id, config.held_out, seed) == held_out]
            plans = [
                plan
                for it in here
                if it.kept
                for plan in known_plans(problems[it.problem_id], it, here, config.methods, seed)
            ]
            plans += [
                LabelledPlan(problems[it.problem_id], it.plan, it.valid, "written")
                for it in judged
                if it.valid is not None and is_held_out(it.problem_id, config.held_out, seed) == held_out
            ]
            try:
                parts.append(balance(plans, seed))
            except UsageError:
                which = "held-out" if held_out else "other"
                said = f"the {which} problems have not both valid plans and others"
                return cls(tuple(judged), why_none=said)
        train, held = parts
        return cls(tuple(judged), train, held)

    @property
    def counts(self) -> dict[str, Any]:
        """For the data card; JSON values."""
        said = Counter({True: "valid", False: "not valid", None: "unanswered"}[it.valid] for it in self.judged)
        return {
            "train": _by_kind(self.train),
            "held_out": _by_kind(self.held_out),
            "judged": dict(sorted(said.items())),
            "why_none": self.why_none,
        }


def is_held_out(problem_id: str, share: float, seed: int) -> bool:
    """Whether a problem's plans measure a gate. It stays so whatever other problems there are: a gate that goes on
    learning is not measured on what it was trained on before."""
    return derive(seed, "gate held out", problem_id) / 2**63 < share


def _by_kind(plans: Iterable[LabelledPlan]) -> dict[str, int]:
    return dict(sorted(Counter(it.kind for it in plans).items()))
