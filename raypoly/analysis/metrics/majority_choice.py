"""Self-consistency: the answer that most attempts give is chosen, and its verdict counts (maj@k).

    majority(["x", "y", "y", None])                                     # 1
    maj_at_k(["x", "y", "y"], passed=[False, True, True], k=3)          # 1.0

A signature is what an attempt answers, or what its program returns on example inputs. It never comes from a verdict: a
vote sees what could be seen without tests (arXiv 2203.11171; ties by order: arXiv 2605.27000, section 4.6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from raypoly.algorithms.objectives.subset_draws import some_sets
from raypoly.core.seeds import derive

MOST_VOTES = 10_000
"""All choices of k attempts vote, up to this number; beyond it, so many different ones."""


def majority(signatures: Sequence[Hashable | None]) -> int | None:
    """The first attempt of the largest class; of equally large ones, of that which comes first.

    An attempt without a signature has no vote. None where nobody votes.
    """
    votes = Counter(signature for signature in signatures if signature is not None)
    if not votes:
        return None
    return signatures.index(max(votes, key=votes.__getitem__))  # of equal counts, the class that came first


def maj_at_k(signatures: Sequence[Hashable | None], passed: Sequence[bool], k: int, seed: int = 0) -> float:
    """The chance that the choice among k of the N attempts passes, each k in the group's order.

    Exact where there are at most 10,000 sets of k; else the mean over 10,000 different ones, drawn uniformly by a seed
    of `seed`, N and k: equal for all problems, and the same each time. A vote without voters does not pass.
    Raises `ValueError` unless 1 <= k <= N, with as many verdicts as signatures.
    """
    attempts = len(signatures)
    if not 1 <= k <= attempts or len(passed) != attempts:
        raise ValueError(f"maj@{k} needs 1 <= k <= n, got n={attempts} with {len(passed)} verdicts")
    won = 0
    draws = some_sets(attempts, k, MOST_VOTES, derive(seed, "majority", attempts, k)).tolist()
    for places in draws:
        chosen = majority([signatures[place] for place in places])
        won += chosen is not None and bool(passed[places[chosen]])
    return won / len(draws)
