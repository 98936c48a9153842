"""How different the K methods of a plan are, or K programs where there is no plan: as texts, by meaning, by algorithm.

    surface_diversity(["sort and sweep", "use a hash map"])     # 1.0: no four words in common
    algorithmic_diversity(["dp", "greedy", "dp", "graph"])      # 0.75
    has_duplicate(["Use DP.", "use dp"])                        # True

Equations 14 to 16 of arXiv 2605.27000. Means over problems are the caller's; a method that is missing is left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import permutations

import numpy as np

from raypoly.core.values import Float64
from raypoly.rollouts.scaffolds.plan_contract import wording

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
"""The study's taxonomy of algorithms, for whoever names the category of a method."""
_LONGEST = 4


def bleu_4(candidate: str, reference: str) -> float:
    """BLEU with n-grams up to 4 of one text against one other, in 0 to 1 (Papineni et al. 2002).

    Words are what white space divides. Not smoothed: without a match of some length it is 0, and so it is for fewer
    than four words, unless both are the same words.
    """
    return _bleu_4(_Grams(candidate.split()), _Grams(reference.split()))


def surface_diversity(texts: Sequence[str]) -> float | None:
    """D_surf: 1 minus the mean `bleu_4` over ordered pairs of the texts; None below two. 0: all are the same."""
    pairs = list(permutations([_Grams(text.split()) for text in texts], 2))
    return 1 - math.fsum(_bleu_4(one, other) for one, other in pairs) / len(pairs) if pairs else None


def semantic_diversity(vectors: Float64) -> float | None:
    """D_sem: the mean cosine distance over pairs of texts, from the vector of each, [K, width]; None below two.

    Raises `ValueError` for a vector of zeros, which has no direction.
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    if not np.all(lengths > 0):
        raise ValueError("a text's vector has no direction: it must not be zero, nor NaN")
    if (texts := len(vectors)) < 2:
        return None
    cosines = (vectors / lengths) @ (vectors / lengths).T
    return 1 - float(cosines[~np.eye(texts, dtype=bool)].mean())


def algorithmic_diversity(categories: Sequence[Hashable]) -> float | None:
    """D_alg: distinct categories of the K methods, over K; None without methods. Report it where a `CategoryGate` lets
    it pass."""
    return len(set(categories)) / len(categories) if categories else None


def has_duplicate(methods: Sequence[str]) -> bool:
    """Whether two are the same but for case, punctuation and white space. The mean over plans is the duplicate rate.

    In programs punctuation matters: compare their canonical forms instead.
    """
    return len(set(map(wording, methods))) < len(methods)


class _Grams:
    """A text's words, and how often each n-gram is among them, by n - 1."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.counts = [
            Counter(zip(*(words[start:] for start in range(length)), strict=False)) for length in range(1, _LONGEST + 1)
        ]


def _bleu_4(candidate: _Grams, reference: _Grams) -> float:
    words, others = candidate.words, reference.words
    if words == others:
        return 1.0
    logs = 0.0
    for grams, known in zip(candidate.counts, reference.counts, strict=True):
        matches = (grams & known).total()
        if not matches:
            return 0.0
        logs += math.log(matches / grams.total()) / _LONGEST
    return math.exp(min(0.0, 1 - len(others) / len(words)) + logs)
