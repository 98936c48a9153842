"""Measures of a judge, from its labels of gold groups.

    measures = measure_judge(results)
    measures["ari"].value, measures["ari"].interval.low     # 0.83, 0.76
    find_unmet(measures, parse_requirements(["ari=0.7"]))    # [] where all are met

Measures are means over groups with an interval over problems, or counts of pairs and programs added up over groups.
Groups that the judge refused count in `refused` alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from raypoly.analysis.statistics.intervals import ConfidenceInterval, share_interval
from raypoly.analysis.statistics.paired_differences import holm, signs_test
from raypoly.core.errors import UsageError
from raypoly.strategies.judge.label_agreement import (
    LOWEST_ARI,
    PairCounts,
    adjusted_rand,
    count_degenerates,
    count_pairs,
)

CONSISTENCIES = ("renaming", "reordering", "comments", "reformatting", "dead_code")
"""Changes of a group that change no strategy."""
MEASURES: Mapping[str, str] = {
    "ari": "adjusted Rand index",
    "precision": "pairwise precision",
    "recall": "pairwise recall",
    "f1": "pairwise F1",
    "degenerate_precision": "degenerate precision",
    "degenerate_recall": "degenerate recall",
    **{name: f"consistency: {name.replace('_', ' ')}" for name in CONSISTENCIES},
    "run_to_run": "run-to-run agreement",
    "refused": "share of groups refused",
}
"""Names, and their words in a table."""
_AT_MOST = frozenset({"refused"})  # better the smaller they are


@dataclass(frozen=True)
class AuditedGroup:
    """A gold group with N programs, and a judge's labels."""

    id: str
    gold: tuple[int, ...]
    found: tuple[int, ...] | None
    reason: str = ""
    agreements: Mapping[str, float] = field(default_factory=dict)
    """Adjusted Rand index of its labels with its own after a change or from run to run, by measure."""
    problem: str = ""
    """The same for groups of one problem; empty where it is the group's own."""

    @property
    def unit(self) -> tuple[str, str]:
        """The problem: what intervals and tests draw."""
        return (self.problem, "") if self.problem else ("", self.id)

    @property
    def ari(self) -> float | None:
        return None if self.found is None else adjusted_rand(self.found, self.gold)


@dataclass(frozen=True)
class Measure:
    value: float | None
    """None where there is nothing to measure."""
    interval: ConfidenceInterval | None = None
    """95 % over problems, of a mean over groups."""


@dataclass(frozen=True)
class JudgeDifference:
    """A measure of two judges over the same groups."""

    difference: float
    """Mean over groups of the first minus the second."""
    p_value: float
    """Two-sided: the share of swaps of the two, problem by problem, that give as large a difference."""
    groups: int
    exact: bool
    """Whether all patterns of swaps were counted, not a sample."""
    holm: float = 1.0
    """The p-value adjusted for all measures compared (Holm 1979)."""


def measure_judge(results: Sequence[AuditedGroup]) -> dict[str, Measure]:
    """The measures of the results, by name, in the order of `MEASURES`."""
    judged = [(result.found, result.gold) for result in results if result.found is not None]
    together = sum((count_pairs(found, gold) for found, gold in judged), PairCounts())
    idle = sum((count_degenerates(found, gold) for found, gold in judged), PairCounts())
    found = {
        "ari": _mean(results, "ari"),
        "precision": Measure(together.precision),
        "recall": Measure(together.recall),
        "f1": Measure(together.f1),
        "degenerate_precision": Measure(idle.precision),
        "degenerate_recall": Measure(idle.recall),
        "refused": Measure(1 - len(judged) / len(results)),
    }
    for name in {name for result in results for name in result.agreements}:
        found[name] = _mean(results, name)
    return {name: found[name] for name in MEASURES if name in found}


def compare_judges(one: Sequence[AuditedGroup], other: Sequence[AuditedGroup]) -> dict[str, JudgeDifference]:
    """The paired test of each mean over groups, over those that both judges have a value for."""
    found: dict[str, JudgeDifference] = {}
    for name in MEASURES:
        pairs = [(mine, _value(mine, name), _value(theirs, name)) for mine, theirs in zip(one, other, strict=True)]
        known = [(mine.unit, a - b) for mine, a, b in pairs if a is not None and b is not None]
        if known:
            units, differences = zip(*known, strict=True)
            test = signs_test(differences, units)
            mean = math.fsum(differences) / len(differences)
            found[name] = JudgeDifference(mean, test.p_value, len(known), test.exact)
    adjusted = holm({name: each.p_value for name, each in found.items()})
    return {name: replace(each, holm=adjusted[name]) for name, each in found.items()}


def parse_requirements(texts: Sequence[str]) -> dict[str, float]:
    """The bound of each measure, from texts such as `ari=0.7`.

    Raises `UsageError` for an unknown measure or a bound that is no number from -1 to 1.
    """
    found = {}
    for text in texts:
        name, equals, number = (part.strip() for part in text.partition("="))
        if name not in MEASURES:
            near = get_close_matches(name, MEASURES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the measures are {', '.join(MEASURES)}."
            raise UsageError(f"--require {text}: there is no measure {name!r}; {hint}")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not equals or not -1 <= value <= 1:
            raise UsageError(f"--require {text}: write {name}=0.7, a number from -1 to 1.")
        found[name] = value
    return found


def find_unmet(measures: Mapping[str, Measure], required: Mapping[str, float]) -> list[str]:
    """The requirements that the measures do not meet, each in words."""
    short = []
    for name, bound in required.items():
        value = measures[name].value if name in measures else None
        if value is None:
            short.append(f"{name} has no value")
        elif value > bound if name in _AT_MOST else value < bound:
            short.append(f"{name} is {value:.3f}, {'above' if name in _AT_MOST else 'below'} {bound:g}")
    return short


def _value(result: AuditedGroup, name: str) -> float | None:
    return result.ari if name == "ari" else result.agreements.get(name)


def _mean(results: Sequence[AuditedGroup], name: str) -> Measure:
    known = [(result.unit, value) for result in results if (value := _value(result, name)) is not None]
    if not known:
        return Measure(None)
    interval = share_interval([value for _, value in known], [unit for unit, _ in known], lowest=LOWEST_ARI)
    return Measure(interval.mean, interval)
