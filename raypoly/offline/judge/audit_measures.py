"""Measures of a judge, from its labels of gold groups.

    measures = measure_judge(results)
    measures["ari"].value, measures["ari"].interval.low     # 0.83, 0.76
    find_unmet(measures, parse_requirements(["ari=0.7"]))    # [] where all are met

Measures are means over groups with a bootstrap interval, or counts of pairs and programs added up over groups. Groups
that the judge refused count in `refused` alone: nobody knows their labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from raypoly.errors import UsageError
from raypoly.judge.label_agreement import (
    ConfidenceInterval,
    LabelComparison,
    PairCounts,
    adjusted_rand,
    count_degenerates,
    count_pairs,
    mean_interval,
    paired_test,
)
from raypoly.offline.judge.program_transforms import CHANGES

CONSISTENCIES = (*list(CHANGES)[:1], "reordering", *list(CHANGES)[1:])
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
"""Name and what a person reads."""
_AT_MOST = frozenset({"refused"})
"""Measures that are better the smaller they are."""
SEED = 0
"""Of bootstrap and test: the same labels give the same table."""


@dataclass(frozen=True)
class AuditedGroup:
    """One gold group with N programs, and a judge's labels of it."""

    id: str
    gold: tuple[int, ...]
    found: tuple[int, ...] | None
    """None where the judge gave no labels."""
    reason: str = ""
    agreements: Mapping[str, float] = field(default_factory=dict)
    """Adjusted Rand index of its labels with its own after a change, or from run to run, by measure."""

    @property
    def ari(self) -> float | None:
        return None if self.found is None else adjusted_rand(self.found, self.gold)


@dataclass(frozen=True)
class Measure:
    """One number about a judge."""

    value: float | None
    """None where there is nothing to measure: no degenerate program, say."""
    interval: ConfidenceInterval | None = None
    """95 % over groups, where the value is a mean over them."""


def measure_judge(results: Sequence[AuditedGroup]) -> dict[str, Measure]:
    """The measures that the results have values for, by name, in the order of `MEASURES`."""
    judged = [(result.found, result.gold) for result in results if result.found is not None]
    together = sum((count_pairs(found, gold) for found, gold in judged), PairCounts())
    idle = sum((count_degenerates(found, gold) for found, gold in judged), PairCounts())
    found = {
        "ari": _mean(_values(results, "ari")),
        "precision": Measure(together.precision),
        "recall": Measure(together.recall),
        "f1": Measure(together.f1),
        "degenerate_precision": Measure(idle.precision),
        "degenerate_recall": Measure(idle.recall),
        "refused": Measure(1 - len(judged) / len(results)),
    }
    for name in {name for result in results for name in result.agreements}:
        found[name] = _mean(_values(results, name))
    return {name: found[name] for name in MEASURES if name in found}


def compare_judges(one: Sequence[AuditedGroup], other: Sequence[AuditedGroup]) -> dict[str, LabelComparison]:
    """The paired test of each mean over groups, by name, over the groups for which both judges have a value."""
    tests = {}
    for name in MEASURES:
        both = [(a, b) for a, b in ((_value(a, name), _value(b, name)) for a, b in zip(one, other, strict=True))]
        first = [a for a, b in both if a is not None and b is not None]
        second = [b for a, b in both if a is not None and b is not None]
        if first:
            tests[name] = paired_test(first, second, SEED)
    return tests


def parse_requirements(texts: Sequence[str]) -> dict[str, float]:
    """The bound of each measure, from texts such as `ari=0.7`.

    Raises `UsageError` for an unknown measure, and for a bound that is no number from -1 to 1.
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


def _values(results: Sequence[AuditedGroup], name: str) -> list[float]:
    return [value for result in results if (value := _value(result, name)) is not None]


def _mean(values: Sequence[float]) -> Measure:
    if not values:
        return Measure(None)
    interval = mean_interval(values, SEED)
    return Measure(interval.mean, interval)
