"""Join what a judge tells apart and execution doesn't (`judge.labels=agreed`).

A coat may fool one of the two, seldom both: a policy is paid for a strategy only where both see one. Two programs are
together if either has them together, or if a chain of such pairs links them; what either calls degenerate is. Where
nothing ran, as with answers that are no programs, the judge's labels stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from raypoly.core.values import Labels, Problem, Rollout, Verdict
from raypoly.strategies.judge.structural import labels_of, structural_labels

_OF_LABELS = frozenset({"clusters", "preview"})
"""What a judge says by itself, which isn't what is said here."""


class AgreedJudge:
    """A judge whose labels are joined with those of execution; all else is the judge's."""

    def __init__(self, judge: Any) -> None:
        self._judge = judge

    def label(self, problem: Problem, rollouts: Sequence[Rollout], verdicts: Sequence[Verdict]) -> Labels:
        """Raises the judge's `JudgeUnavailable` or `JudgeRefused`."""
        labels: Labels = self._judge.label(problem, rollouts, verdicts)
        by_execution = structural_labels(verdicts)
        return labels if by_execution is None or not labels.known else joined(labels, by_execution)

    def probe(self) -> None:
        self._judge.probe()

    def __getattr__(self, name: str) -> Any:
        if name in _OF_LABELS or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._judge, name)

    def __repr__(self) -> str:
        return f"agreed({self._judge!r})"


def joined(first: Labels, second: Labels) -> Labels:
    """Labels of N programs that are apart only where both have them apart, ids by first occurrence."""
    degenerate = first.degenerate | second.degenerate
    ids = np.arange(1, len(degenerate) + 1, dtype=np.int32)
    for labels in (first, second):
        for strategy in set(labels.ids[~degenerate].tolist()):
            together = ids[~degenerate & (labels.ids == strategy)]
            ids[np.isin(ids, together)] = together.min()
    strategies = [None if out else int(number) for number, out in zip(ids, degenerate, strict=True)]
    return labels_of(strategies, f"agreed({first.judge}+{second.judge})")
