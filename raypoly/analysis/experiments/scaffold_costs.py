"""What a run's scaffold costs and how different its attempts are, after training: a row of an experiment's table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from raypoly.analysis.metrics.problem_counts import ProblemCounts


@dataclass(frozen=True)
class ScaffoldCosts:
    """Means over problems, of an evaluation's own scaffold; None is unknown."""

    scaffold: str
    tokens: float
    """Decoded tokens of a problem's samples, of all roles."""
    pass_per_10k: Mapping[str, float]
    """pass@k for each 10,000 tokens that k attempts take, by k."""
    duplicates: float | None = None
    """The share of blocks in which two methods are the same; of programs where there are no methods."""
    followed: float | None = None
    """The share of attempts that did what their method says."""
    surface_diversity: float | None = None

    @classmethod
    def of(cls, evaluation: Mapping[str, Any] | None, problems: ProblemCounts | None) -> Self | None:
        """From an evaluation's results; of one by `direct`, which say nothing of tokens, from its counts by problem."""
        if evaluation is None:
            return None
        if "scaffold" in evaluation:
            names = ("duplicates", "followed", "surface_diversity")
            tokens = math.fsum(evaluation["decoded_tokens"].values())
            own = {name: evaluation.get(name) for name in names}
            return cls(evaluation["scaffold"], tokens, evaluation["pass_per_10k"], **own)
        spent = problems.of_known().response_tokens if problems else ()
        if not spent or None in spent:
            return None
        tokens = math.fsum(count or 0 for count in spent) / len(spent)
        curve, samples = evaluation["pass_at_k"], evaluation["samples"]
        return cls("direct", tokens, {k: 1e4 * share * samples / (int(k) * tokens) for k, share in curve.items()})
