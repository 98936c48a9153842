"""The embedded judge: strategies by live syntax, told without a model. Deterministic and offline.

    StructuralJudge(config).label(problem, rollouts, verdicts).ids   ->  [1, 1, 2, 0]

It reads the evidence that came with each verdict and never a program. A wrong program is judged like any other.

Puzzles, whose programs are a few lines, are told apart by the set of live constructs that grew with the input and
mattered. Unlike `Evidence.strategy`, the metric's measure, that signature names no winner: a loop over a comprehension
is neither a loop nor a comprehension. Other problems come with features, and two programs share a strategy iff
`raypoly.judge.approach_priority` gives them the same approach.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from raypoly.config import JudgeConfig
from raypoly.judge.approach_priority import DEGENERATE, approach_of
from raypoly.values import Evidence, Labels, Problem, Rollout, Verdict

NAME = "structural-1"
"""Signatures of puzzles."""
APPROACH_NAME = "structural-approach-2"
"""Approaches of everything else."""
_SAME = {"generator": "comprehension", "map": "higher_order", "filter": "higher_order"}
"""Constructs that differ in spelling only."""
_UNSEEN = frozenset({"unseen"})


class StructuralJudge:
    """Labels a group from evidence alone; it is never away."""

    def __init__(self, config: JudgeConfig) -> None:
        self.config = config

    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        """Ids count from 1 in order of first occurrence; what is no attempt is degenerate."""
        return label_evidence([None if v.status == "no_code" else v.evidence for v in verdicts])

    def probe(self) -> None:
        """Always there."""

    def __repr__(self) -> str:
        return f"StructuralJudge({NAME}, {APPROACH_NAME})"


def label_evidence(evidence: Sequence[Evidence | None]) -> Labels:
    """Labels of N programs; None is a program that does not parse, degenerate like a placeholder.

    By approach where any of them has features, by signature where none has.
    """
    if any(found is not None and found.features for found in evidence):
        approaches = [DEGENERATE if found is None else approach_of(frozenset(found.features)) for found in evidence]
        return _labels([None if approach == DEGENERATE else approach for approach in approaches], APPROACH_NAME)
    return _labels([None if found is None else signature(found) for found in evidence], NAME)


def structural_labels(verdicts: Sequence[Verdict]) -> Labels | None:
    """Labels of N programs by what their verdicts brought; None where none of them left evidence."""
    if all(verdict.evidence is None for verdict in verdicts):
        return None
    return label_evidence([None if verdict.status == "no_code" else verdict.evidence for verdict in verdicts])


def signature(evidence: Evidence) -> frozenset[str]:
    """What makes two puzzle programs one strategy.

    Live constructs that execution confirms; all live ones where nothing was confirmed, because the program ended before
    a loop ran; one signature of its own where not even syntax is known. Feeding `reduce` by a filter is still a reduce.
    """
    live = set(evidence.constructs)
    confirmed = {name for name in live if evidence.growth.get(name, 0) > 0}
    names = frozenset(_SAME.get(name, name) for name in confirmed or live)
    if "reduce" in names:
        names -= {"higher_order"}
    return names or _UNSEEN


def _labels(strategies: Sequence[Hashable | None], judge: str) -> Labels:
    """Ids by equality, None degenerate."""
    seen: dict[Hashable, int] = {}
    ids = [0 if strategy is None else seen.setdefault(strategy, len(seen) + 1) for strategy in strategies]
    degenerate = np.array([strategy is None for strategy in strategies], np.bool_)
    return Labels(np.array(ids, np.int32), degenerate, judge)
