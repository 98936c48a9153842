"""A run's reported numbers under other verdicts or other labels.

    numbers += training_numbers("step 0", [GroupThenAndNow.read(row) for row in rows_of_a_step], reported)
    show_numbers(console, numbers, at_most=40)

Both sides are computed over the same groups: those that are known then and now. Where some are left out, `then` differs
from what was `reported`. Training counts distinct strategies in 8 draws or all N; an evaluation as
`raypoly.analysis.metrics.pass_at_k.summarise`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from raypoly.analysis.evaluation.evaluation_results import blocks_curve
from raypoly.analysis.metrics.group_outcomes import GroupOutcomes
from raypoly.analysis.metrics.pass_at_k import distinct, ks, pass_at_k, summarise
from raypoly.core.tables import DASH, ReportTable

_REPORTED = ("strategies_correct", "strategies_correct_judge", "strategies_correct_structural")


Values = Mapping[str, float]
"""A group's own numbers by name; what is unknown is missing."""


@dataclass(frozen=True)
class ChangedNumber:
    """One number of a step, an evaluation or all training; None is unknown."""

    of: str
    name: str
    groups: int
    reported: float | None
    then: float | None
    now: float | None

    @property
    def change(self) -> float | None:
        return None if self.then is None or self.now is None else self.now - self.then

    @property
    def of_step(self) -> bool:
        return self.of.startswith("step ")

    @property
    def row(self) -> dict[str, Any]:
        return {"number": self.name, **{key: value for key, value in vars(self).items() if key != "name"}}


@dataclass(frozen=True)
class GroupThenAndNow:
    then: GroupOutcomes
    now: GroupOutcomes
    labels: Sequence[int] | None

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> GroupThenAndNow | None:
        """None where a side is unknown."""
        if row["now"] is None:
            return None
        then, now = GroupOutcomes.read(row["then"]), GroupOutcomes.read(row["now"])
        return cls(then, now, row["labels"]) if then.sound and now.sound else None


def compare_values(of: str, pairs: Sequence[tuple[Values, Values]], reported: Mapping[str, Any]) -> list[ChangedNumber]:
    """Means over groups by name; None on a side that any group lacks."""
    numbers = []
    for name in dict.fromkeys(name for one, two in pairs for name in (*one, *two)):
        # where it is unknown of some groups, the others may be no fair part of all: those without a right program
        then, now = (_mean([pair[side].get(name) for pair in pairs]) for side in (0, 1))
        numbers.append(ChangedNumber(of, name, len(pairs), reported.get(name), then, now))
    return numbers


def training_numbers(of: str, held: Sequence[GroupThenAndNow], reported: Mapping[str, Any]) -> list[ChangedNumber]:
    """Reward, pass@k and strategies of a step's groups."""
    numbers = compare_values(of, [(_values_of(group.then), _values_of(group.now)) for group in held], reported)
    # as the run's own row: of the groups that the judge labelled, of all where it labelled none
    labelled = [group for group in held if group.labels is not None] or held
    found = [(group.then.structural, group.now.structural) for group in labelled]
    name = "strategies_structural"
    known = [({name: distinct(one)}, {name: distinct(two)}) for one, two in found if one and two]
    return [*numbers, *compare_values(of, known, reported)]


def training_means(numbers: Sequence[ChangedNumber]) -> list[ChangedNumber]:
    """The numbers of steps as means over the groups of training, where both sides are known."""
    means = []
    for name in dict.fromkeys(number.name for number in numbers if number.of_step):
        own = [number for number in numbers if number.of_step and number.name == name]
        own = [number for number in own if number.change is not None] or own
        count = sum(number.groups for number in own)
        then = _mean([number.then for number in own], [number.groups for number in own])
        now = _mean([number.now for number in own], [number.groups for number in own])
        means.append(ChangedNumber("training", name, count, None, then, now))
    return means


def evaluation_numbers(of: str, held: Sequence[GroupThenAndNow], reported: Mapping[str, Any]) -> list[ChangedNumber]:
    """pass@k and correct strategies of an evaluation's problems."""
    if not held:
        return []
    then = summarise([group.then.outcome(group.labels) for group in held])
    now = summarise([group.now.outcome(group.labels) for group in held])
    curves: list[Any] = [found.get("pass_at_k", {}) for found in (reported, then, now)]
    if (block := reported.get("block", 1)) > 1:
        sides = zip(*((group.then.statuses, group.now.statuses) for group in held), strict=True)
        passed = [[[status == "passed" for status in each] for each in side] for side in sides]
        curves[1:] = [blocks_curve(each, block, reported.get("select", "first")) for each in passed]
    numbers = [ChangedNumber(of, f"pass@{k}", len(held), *(curve.get(k) for curve in curves)) for k in curves[1]]
    for key in _REPORTED:
        values: list[Any] = [found.get(key) for found in (reported, then, now)]
        if any(value is not None for value in values):
            numbers.append(ChangedNumber(of, key, len(held), *values))
    return numbers


def show_numbers(console: Console, numbers: Sequence[ChangedNumber], at_most: int) -> None:
    """Print the numbers of training and evaluations, and those of steps that moved."""
    moved = [number for number in numbers if number.change and number.of_step]
    rest = [*training_means(numbers), *(number for number in numbers if not number.of_step)]
    if not rest:
        return
    rows = []
    for number in (*rest, *moved[:at_most]):
        values = (DASH if value is None else f"{value:.4f}" for value in (number.reported, number.then, number.now))
        change = "unknown" if number.change is None else f"{number.change:+.4f}" if number.change else DASH
        rows.append((number.of, number.name, f"{number.groups:,}", *values, change))
    head = ("of", "number", "groups", "reported", "then", "now", "change")
    table = ReportTable(head, rows, range(2, len(head))).rich()
    table.columns[1].no_wrap = True
    console.print(table)
    if len(moved) > at_most:
        console.print(f"the first {at_most} of {len(moved):,} numbers of steps that moved are shown", highlight=False)


def _mean(values: Sequence[float | None], weights: Sequence[float] | None = None) -> float | None:
    """None where one is unknown."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    weights = weights or [1.0] * len(known)
    return math.fsum(value * weight for value, weight in zip(known, weights, strict=True)) / math.fsum(weights)


def _values_of(facts: GroupOutcomes) -> Values:
    size, correct = len(facts.statuses), facts.correct
    values: dict[str, float] = {} if facts.rewards is None else {"reward": math.fsum(facts.rewards) / size}
    values |= {f"pass@{k}": pass_at_k(size, len(correct), k) for k in ks(size)}
    if (drawn := facts.drawn_strategies) is not None:
        values["strategies_correct"] = drawn
    return values
