"""The reward of a run: an outcome, which says whether a response is right, and weighted terms beside it.

    rewards = Rewards.of_run(config)
    found = await rewards.find(answered)                    # {"outcome": float64 [N], "length": float64 [N], ...}

What counts as right everywhere (pass rates, tables, `diversity_of: correct`) is the outcome; what is paid is the
outcome with its terms. An outcome of NaN is unknown: that response is left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from raypoly.core.config import Config
from raypoly.core.values import Float64
from raypoly.verifier.rewards.answered_group import AnsweredGroup
from raypoly.verifier.rewards.reward_function import RewardFunction, Valued, fraction, passed, reward_function
from raypoly.verifier.rewards.terms import NamedTerm, build_terms

__all__ = ["AnsweredGroup", "RewardFunction", "Rewards", "fraction", "passed", "reward_function"]

AskOutcome = Callable[[AnsweredGroup], Awaitable[Valued]]
AskTerms = Callable[[AnsweredGroup], Awaitable[Mapping[str, Float64]]]


@dataclass(frozen=True)
class Rewards:
    outcome: RewardFunction
    terms: Mapping[str, NamedTerm]
    drops_cut: bool = False
    """`reward.when_cut=drop`: a response that a limit ended has no outcome."""

    @classmethod
    def of_run(cls, config: Config) -> Self:
        """Raises `UsageError` for a function or a term that is missing, or does not fit."""
        terms = {term.name: term for term in build_terms(config)}
        terms = dict(sorted(terms.items()))  # in whatever order a config has them
        return cls(reward_function(config), terms, config.reward.when_cut == "drop")

    @property
    def in_stage(self) -> bool:
        """Whether the stage `reward` finds them out. The outcomes of verdicts alone follow from these at any time."""
        return bool(self.terms) or self.outcome.own

    @property
    def own(self) -> bool:
        """Whether a function or a term is the user's."""
        return self.outcome.own or any(term.own for term in self.terms.values())

    @property
    def weights(self) -> Mapping[str, float]:
        return {name: term.weight for name, term in self.terms.items()}

    async def find(
        self, answered: AnsweredGroup, ask_outcome: AskOutcome | None = None, ask_terms: AskTerms | None = None
    ) -> dict[str, Float64]:
        """float64 [N] by name: `outcome`, each term before its weight, and other numbers that the function gave. NaN is
        unknown: an outcome of one response, a term of the whole group.

        `ask_outcome` and `ask_terms` ask the user's own elsewhere; by default all is asked here. A term that reads a
        finding that is not there is unknown.
        """
        valued = await (ask_outcome or self.outcome.values)(answered)
        found = {**valued.parts, "outcome": valued.outcome}
        known = np.flatnonzero(np.isfinite(valued.outcome)).tolist()
        group = replace(answered, outcome=valued.outcome).of(known)
        elsewhere = await ask_terms(group) if known and ask_terms is not None else {}
        for name, term in self.terms.items():
            found[name] = np.full(answered.size, np.nan)
            if known and term.may_say(group):
                found[name][known] = elsewhere[name] if name in elsewhere else term.values(group)
        return found

    def measures(self, found: Mapping[str, Float64]) -> Mapping[str, float]:
        """Numbers of one group. The spread of the outcome and of each term; the mean of a term, over the responses in
        its `when`, and of each logged part; for a term whether it is unknown."""
        outcome = found["outcome"]
        known = np.isfinite(outcome)
        if not known.any():
            return {}
        numbers = {"outcome_spread": float(outcome[known].std())}
        for name, values in found.items():
            given = values[np.isfinite(values)]
            if name in self.terms:
                numbers |= self._measures_of(name, values[known], outcome[known])
            elif name != "outcome" and given.size:
                numbers[name] = float(given.mean())
        return numbers

    def _measures_of(self, name: str, values: Float64, outcome: Float64) -> Mapping[str, float]:
        if np.isnan(values).any():
            return {f"{name}_unknown": 1.0}
        within = values[self.terms[name].gate(outcome >= 1)]
        mean = {name: float(within.mean())} if within.size else {}
        return {f"{name}_unknown": 0.0, f"{name}_spread": float(values.std()), **mean}
