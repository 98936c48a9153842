"""Agreement that categories of algorithms need to be reported: of two annotators, and of the classifier with both.

    gate = CategoryGate.of(annotator_1, annotator_2, gold, classifier)      # names of categories, one a method each
    gate.reported                                                           # kappa >= 0.6 and macro F1 >= 0.7

The thresholds are those of arXiv 2605.27000, appendix F.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

LEAST_KAPPA, LEAST_MACRO_F1 = 0.6, 0.7

CATEGORIES = (
    "dp",
    "greedy",
    "graph",
    "search/backtrack",
    "number-theory/math",
    "simulation",
    "data-structure",
    "divide-and-conquer",
    "brute-force",
    "other",
)
"""The study's."""

Names = Sequence[Hashable]


@dataclass(frozen=True)
class CategoryGate:
    kappa: float | None
    """Of the annotators; None where both know one category alone."""
    accuracy: float
    """Of the classifier."""
    macro_f1: float

    @classmethod
    def of(cls, annotator_1: Names, annotator_2: Names, gold: Names, classifier: Names) -> Self:
        """`gold`: what the annotators agreed on in the end. Raises `ValueError` unless each names the same methods."""
        counts = [len(names) for names in (annotator_1, annotator_2, gold, classifier)]
        if len(set(counts)) > 1 or not counts[0]:
            raise ValueError(f"both annotators, gold and classifier must name the same methods, got {counts} names")
        return cls(cohen_kappa(annotator_1, annotator_2), _agreement(gold, classifier), macro_f1(gold, classifier))

    @property
    def reported(self) -> bool:
        return self.kappa is not None and self.kappa >= LEAST_KAPPA and self.macro_f1 >= LEAST_MACRO_F1


def cohen_kappa(one: Names, other: Names) -> float | None:
    """(p_o - p_e)/(1 - p_e): agreement beyond chance (Cohen 1960); None where chance alone agrees throughout."""
    ones, others = Counter(one), Counter(other)
    by_chance = sum(ones[name] * others[name] for name in ones)  # of all n * n pairs
    if by_chance == len(one) ** 2:
        return None
    chance = by_chance / len(one) ** 2
    return (_agreement(one, other) - chance) / (1 - chance)


def macro_f1(gold: Names, given: Names) -> float:
    """Mean F1 over the categories that either names."""
    right = Counter(name for name, same in zip(gold, given, strict=True) if name == same)
    named = Counter(gold) + Counter(given)
    return sum(2 * right[name] / named[name] for name in named) / len(named)


def _agreement(one: Names, other: Names) -> float:
    return sum(a == b for a, b in zip(one, other, strict=True)) / len(one)


def algorithmic_diversity(categories: Sequence[Hashable]) -> float | None:
    """D_alg: distinct categories of the K methods, over K; None without methods. Report it where a `CategoryGate` lets
    it pass."""
    return len(set(categories)) / len(categories) if categories else None
