"""A run's reported numbers under other verdicts.

    numbers = ChangedNumbers()
    for row in rows:
        numbers.add(GroupThenAndNow.read(row))
    numbers.end("step 0", True, reported); numbers.overall

Both sides are computed over the same groups: those with sound verdicts then and now. Where some are left out, `then`
differs from what was `reported`. Training counts distinct strategies in 8 draws or all N; an evaluation as
`raypoly.analysis.metrics.pass_at_k.summarise`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raypoly.analysis.evaluation.evaluation_results import blocks_curve
from raypoly.analysis.metrics.group_outcomes import GroupOutcomes
from raypoly.analysis.metrics.pass_at_k import distinct, ks, pass_at_k, summarise

_REPORTED = ("strategies_correct", "strategies_correct_judge", "strategies_correct_structural")


@dataclass(frozen=True)
class ChangedNumber:
    """One number of a step or an evaluation; None is unknown."""

    of: str
    name: str
    groups: int
    """That it is a mean over."""
    reported: float | None
    then: float | None
    now: float | None

    @property
    def change(self) -> float | None:
        return None if self.then is None or self.now is None else self.now - self.then

    @property
    def row(self) -> dict[str, Any]:
        return {"number": self.name, **{key: value for key, value in vars(self).items() if key != "name"}}


@dataclass(frozen=True)
class GroupThenAndNow:
    """A group with its facts on both sides."""

    then: GroupOutcomes
    now: GroupOutcomes
    labels: Sequence[int] | None

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> GroupThenAndNow | None:
        """From a group's row; None where a side is unknown."""
        if row["now"] is None:
            return None
        then, now = GroupOutcomes.read(row["then"]), GroupOutcomes.read(row["now"])
        return cls(then, now, row["labels"]) if then.sound and now.sound else None


Values = dict[str, float]


class ChangedNumbers:
    """Means over a run's groups, one step or evaluation at a time."""

    def __init__(self) -> None:
        self._held: list[GroupThenAndNow] = []
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])

    def add(self, group: GroupThenAndNow | None) -> None:
        """One more group of the step or evaluation at hand."""
        if group is not None:
            self._held.append(group)

    def end(self, name: str, training: bool, reported: Mapping[str, Any]) -> list[ChangedNumber]:
        """The numbers of the step or evaluation at hand, which ends."""
        held, self._held = self._held, []
        if not held:
            return []
        return list(
            self._training_numbers(name, held, reported) if training else _evaluation_numbers(name, held, reported)
        )

    @property
    def overall(self) -> list[ChangedNumber]:
        """Over all groups of training."""
        return [
            ChangedNumber("training", name, int(count), None, then / count, now / count)
            for name, (then, now, count) in self._sums.items()
            if count
        ]

    def _training_numbers(
        self, name: str, held: Sequence[GroupThenAndNow], reported: Mapping[str, Any]
    ) -> Iterator[ChangedNumber]:
        sides = [(_values_of(group.then), _values_of(group.now)) for group in held]
        for key in _names_of(sides):
            # where it is unknown of some groups, the others may be no fair part of all: those without a right program
            whole = all(key in one and key in two for one, two in sides)
            pairs = [(one[key], two[key]) for one, two in sides] if whole else []
            sums = self._sums[key]
            for one, two in pairs:
                sums[0], sums[1], sums[2] = sums[0] + one, sums[1] + two, sums[2] + 1
            yield _make_number(name, key, pairs, reported.get(key))
        # as the run's own row: of the groups that the judge labelled, of all where it labelled none
        labelled = [group for group in held if group.labels is not None] or held
        found = [(group.then.structural, group.now.structural) for group in labelled]
        known = [(distinct(one), distinct(two)) for one, two in found if one is not None and two is not None]
        yield _make_number(name, "strategies_structural", known, reported.get("strategies_structural"))


def _evaluation_numbers(
    name: str, held: Sequence[GroupThenAndNow], reported: Mapping[str, Any]
) -> Iterator[ChangedNumber]:
    then, now = (
        summarise([facts.outcome(group.labels) for group, facts in side])
        for side in ([(group, group.then) for group in held], [(group, group.now) for group in held])
    )
    curves: list[Any] = [found.get("pass_at_k", {}) for found in (reported, then, now)]
    if (block := reported.get("block", 1)) > 1:
        sides = zip(*((group.then.statuses, group.now.statuses) for group in held), strict=True)
        passed = [[[status == "passed" for status in each] for each in side] for side in sides]
        curves[1:] = [blocks_curve(each, block, reported.get("select", "first")) for each in passed]
    for k in curves[1]:
        yield ChangedNumber(name, f"pass@{k}", len(held), *(curve.get(k) for curve in curves))
    for key in _REPORTED:
        values: list[Any] = [found.get(key) for found in (reported, then, now)]
        if any(value is not None for value in values):
            yield ChangedNumber(name, key, len(held), *values)


def _values_of(facts: GroupOutcomes) -> Values:
    """A group's own numbers, as far as they are known."""
    size, correct = len(facts.statuses), facts.correct
    values = {} if facts.rewards is None else {"reward": math.fsum(facts.rewards) / size}
    values |= {f"pass@{k}": pass_at_k(size, len(correct), k) for k in ks(size)}
    if (drawn := facts.drawn_strategies) is not None:
        values["strategies_correct"] = drawn
    return values


def _names_of(sides: Iterable[tuple[Values, Values]]) -> list[str]:
    """Every number of a group, in the order in which they are computed."""
    return list(dict.fromkeys(name for one, two in sides for name in (*one, *two)))


def _make_number(name: str, key: str, pairs: Sequence[tuple[float, float]], reported: Any) -> ChangedNumber:
    if not pairs:
        return ChangedNumber(name, key, 0, reported, None, None)
    then, now = (math.fsum(side) / len(pairs) for side in zip(*pairs, strict=True))
    return ChangedNumber(name, key, len(pairs), reported, then, now)
