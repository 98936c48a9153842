"""The embedded judge: it tells strategies apart by live syntax, without a model. Deterministic and offline.

    StructuralJudge(config).label(problem, rollouts, verdicts).ids      ->  [1, 1, 2, 0]
    approach_of(frozenset({"depth_1", "hash", "two_pointers"}))         ->  "two pointers"

It reads evidence and never a program. Puzzles and plain tasks are told apart by the construct that did most of the
work, others by features: two programs share a strategy iff they have the same approach. A program uses many things and
follows one idea, as a heap is fed from a hash table: the first feature in `ORDER` that it has names its approach.
Nothing is learned from labels. (Learned distances between feature sets were no better on groups of other authors.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence, Set

import numpy as np

from raypoly.core.config import JudgeConfig
from raypoly.core.values import Evidence, Labels, Problem, Rollout, Verdict

ORDER: tuple[tuple[str, str], ...] = (
    ("placeholder", "degenerate"),
    ("hard_coded", "degenerate"),
    ("fenwick", "indexed tree"),
    ("binary_search", "binary search"),
    ("trie", "trie"),
    ("union_find", "union-find"),
    ("quick_find", "union-find"),
    ("best_first", "best-first search"),
    ("heap", "heap"),
    ("interval", "interval dynamic programming"),
    ("memo", "dynamic programming"),
    ("mono_queue", "monotonic queue"),
    ("mono_stack", "monotonic stack"),
    ("kahn", "topological order"),
    ("queue", "breadth-first search"),
    ("bounds", "bounds handed down"),
    ("threads", "threaded tree"),
    ("descent", "descent"),
    ("inorder", "walk in order"),
    ("nested_dfs", "search within a search"),
    ("pruned", "pruned search"),
    ("backtrack", "exhaustive search"),
    ("dfs", "depth-first search"),
    ("dfs_stack", "depth-first search"),
    ("partition", "partition"),
    ("divide", "divide and conquer"),
    ("halving", "repeated halving"),
    ("halving_recursion", "repeated halving"),
    ("recursion", "exhaustive search"),
    ("kmp", "prefix automaton"),
    ("extend", "extension table"),
    ("sieve", "sieve"),
    ("all_pairs", "all pairs"),
    ("relax", "relaxation"),
    ("subset_bits", "exhaustive search"),
    ("fixpoint", "passes until nothing changes"),
    ("dp", "dynamic programming"),
    ("bisect", "binary search"),
    ("links_turned", "links turned round"),
    ("links_copied", "links copied out"),
    ("floyd", "slow and fast pointers"),
    ("twin_walk", "two pointers"),
    ("window", "sliding window"),
    ("expand", "expansion"),
    ("cycle", "cycles of places"),
    ("reversed_part", "reversal in place"),
    ("two_pointers", "two pointers"),
    ("merge", "merge"),
    ("transpose", "transposition"),
    ("stack", "stack"),
    ("fifo", "simulation"),
    ("cascade", "cascade"),
    ("rolling_hash", "rolling hash"),
    ("sweep", "sweep over events"),
    ("bucket", "buckets"),
    ("sort", "sorting"),
    ("hash", "hash table"),
    ("prefix", "running totals"),
    ("binomial", "formula"),
    ("newton", "Newton's iteration"),
    ("gcd", "Euclid"),
    ("swap", "in-place swaps"),
    ("bits", "bit operations"),
    ("regex", "regular expression"),
)
"""Feature and approach, the deciding one first."""
DEGENERATE = "degenerate"


def approach_of(features: frozenset[str]) -> str:
    """The approach of a program with these features; by its loops where nothing else tells."""
    for feature, approach in ORDER:
        if feature in features and not _incidental(feature, features):
            return approach
    return _by_loops(features) if features else "unseen"


def _incidental(feature: str, features: frozenset[str]) -> bool:
    # Whether the features beside it show that the program follows another idea.
    if feature == "fixpoint":
        return "swap" in features  # bubble sort, which may stop early or not
    if feature == "interval":
        return not features & {"dp", "memo"}  # a test from both ends, with nothing kept
    if feature == "links_copied":
        return "hash" in features  # nodes are remembered, not laid out
    # two pointers three loops deep, over nothing sorted, only check what the loops around them try
    return feature == "two_pointers" and "depth_3" in features and "sort" not in features


def _by_loops(features: frozenset[str]) -> str:
    if "sorted_output" in features and "depth_0" in features:
        return "sorting"
    if features & {"depth_2", "depth_3"}:
        return "brute force"
    if "depth_1" in features:
        return "repeated scan" if "hidden" in features else "scan"
    # a loop written as recursion is a loop
    return "scan" if "linear_recursion" in features else "formula"


NAME = "structural-2"
"""Signatures of puzzles and plain tasks."""
_APPROACH_NAME = "structural-approach-4"  # approaches of everything else
# Constructs that differ in spelling only.
_SAME = {"generator": "comprehension", "map": "higher_order", "filter": "higher_order"}
_UNSEEN = frozenset({"unseen"})


class StructuralJudge:
    """Labels a group from evidence alone; it is never away."""

    def __init__(self, config: JudgeConfig) -> None:
        self.config = config

    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        """What is no attempt is degenerate."""
        return label_evidence([None if v.status == "no_code" else v.evidence for v in verdicts])

    def probe(self) -> None:
        """It is never away."""

    def __repr__(self) -> str:
        return f"StructuralJudge({NAME}, {_APPROACH_NAME})"


def label_evidence(evidence: Sequence[Evidence | None]) -> Labels:
    """Labels of N programs; None is a program that does not parse, degenerate like a placeholder.

    By approach where any of them has features, by signature where none has.
    """
    if any(found is not None and found.features for found in evidence):
        name = _APPROACH_NAME
        approaches = [DEGENERATE if found is None else approach_of(frozenset(found.features)) for found in evidence]
        strategies: list[Hashable | None] = [None if approach == DEGENERATE else approach for approach in approaches]
    else:
        name = NAME
        strategies = [None if found is None else signature(found) for found in evidence]
    unknown = {place for place, found in enumerate(evidence) if found is not None and found.unknown}
    return labels_of(join_largest(strategies, unknown), name)


def join_largest(
    strategies: Sequence[Hashable | None], unknown: Set[int], alone: Hashable = _UNSEEN
) -> list[Hashable | None]:
    """The strategies, with the most frequent of the others at the places `unknown`; `alone` if there is no other."""
    known = Counter(found for place, found in enumerate(strategies) if place not in unknown and found is not None)
    largest = max(known, key=known.__getitem__, default=alone)
    return [largest if place in unknown else found for place, found in enumerate(strategies)]


def structural_labels(verdicts: Sequence[Verdict]) -> Labels | None:
    """Labels of N programs by their verdicts; None where none left evidence."""
    if all(verdict.evidence is None for verdict in verdicts):
        return None
    return label_evidence([None if verdict.status == "no_code" else verdict.evidence for verdict in verdicts])


def signature(evidence: Evidence) -> frozenset[str]:
    """The construct that did the work: what makes two programs of a puzzle or a plain task one strategy.

    Live constructs where none is known to; one signature of its own where not even syntax is known.
    """
    if evidence.strategy:
        return frozenset({evidence.strategy})
    live = set(evidence.constructs)
    confirmed = {name for name in live if evidence.growth.get(name, 0) > 0}
    # nothing is confirmed of a program that ended before a loop ran
    names = frozenset(_SAME.get(name, name) for name in confirmed or live)
    if "reduce" in names:  # one that is fed by a filter is still a reduce
        names -= {"higher_order"}
    return names or _UNSEEN


def labels_of(strategies: Sequence[Hashable | None], judge: str) -> Labels:
    """Ids by first occurrence; None is degenerate."""
    seen: dict[Hashable, int] = {}
    ids = [0 if strategy is None else seen.setdefault(strategy, len(seen) + 1) for strategy in strategies]
    degenerate = np.array([strategy is None for strategy in strategies], np.bool_)
    return Labels(np.array(ids, np.int32), degenerate, judge)
