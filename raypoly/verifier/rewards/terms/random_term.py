"""A coin: 1 or 0 by the run's seed, the step, and the response's place. The control of a study ("Spurious Rewards",
arXiv 2506.10947): what a run gains with it, it would gain from noise."""

from __future__ import annotations

from raypoly.core.seeds import derive
from raypoly.verifier.rewards.answered_group import AnsweredGroup
from raypoly.verifier.rewards.terms.term import Term


class RandomTerm(Term):
    def compute(self, group: AnsweredGroup) -> list[float]:
        return [float(derive(group.seed, "coin", group.step, group.slot, place) % 2) for place in group.places]
