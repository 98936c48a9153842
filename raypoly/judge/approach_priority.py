"""From algorithmic features to one approach: a fixed order of what decides.

    approach_of(frozenset({"depth_1", "hash", "two_pointers"}))  ->  "two pointers"

A program uses many things and follows one idea. The order says which feature is the idea and which are its means: a
breadth-first search keeps a set of visited nodes, a heap is fed from a hash table, a memoised recursion recurses. What
comes first in `ORDER` and is there names the approach; the rest is means. Two programs share a strategy iff they share
that name. Nothing here is learned from labels, and every merge can be explained by one line of the table. (Distances
between feature sets with learned weights, clustered within the group, were no better on groups of other authors.)
"""

from __future__ import annotations

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
    ("subsets_listed", "exhaustive search"),
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
    ("packed", "packing"),
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
    """The approach of a program with these features; brute force, scan or formula where only loops tell."""
    for feature, approach in ORDER:
        if feature in features and not _incidental(feature, features):
            return approach
    return _by_loops(features) if features else "unseen"


def _incidental(feature: str, features: frozenset[str]) -> bool:
    """Whether a feature is there and still not the idea, because of what stands beside it."""
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
