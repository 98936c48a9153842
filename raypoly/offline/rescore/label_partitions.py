"""How far two labellings of a run's groups agree, and what the second does to its diversity numbers.

    found = Partitions()
    for row in rows:
        found.add(row)           # {step, problem_id, then, now, passed}: strategies by rollout, 0 degenerate
    found.show(Console(), reported)

`then` and `now` are compared over the groups that both labelled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raypoly.judge.label_agreement import adjusted_rand, mean_interval
from raypoly.metrics.pass_at_k import distinct, drawn_strategies
from raypoly.offline.command_output import SHOWN, make_table, say
from raypoly.offline.rescore.changed_numbers import ChangedNumber
from raypoly.offline.rescore.verdict_diff import number_table

SEED = 0
"""Of the bootstrap: the same labels give the same interval."""


@dataclass(frozen=True)
class Diversity:
    """How two labellings of one group compare."""

    step: int
    problem_id: str
    ari: float | None
    """Adjusted Rand index of the two; None where one is missing. 1 where the partitions are equal."""
    degenerate: int
    """Programs that one calls degenerate and the other does not."""
    strategies: tuple[float | None, float | None]
    """Distinct strategies, then and now."""
    correct: tuple[float | None, float | None]
    """Distinct strategies among the correct programs in 8 draws or all N, then and now."""

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Diversity:
        then, now, passed = row["then"], row["now"], row["passed"]
        both = then is not None and now is not None
        return cls(
            row["step"],
            row["problem_id"],
            adjusted_rand(then, now) if both else None,
            sum((one == 0) != (two == 0) for one, two in zip(then, now, strict=True)) if both else 0,
            (_count_distinct(then), _count_distinct(now)),
            (_count_correct(then, passed), _count_correct(now, passed)),
        )


@dataclass
class Partitions:
    """The rows of all groups, added up."""

    groups: list[Diversity] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why groups have no labels now, and how many."""

    def add(self, row: Mapping[str, Any]) -> None:
        self.groups.append(Diversity.of_row(row))
        if row["now"] is None:
            self.reasons[row["reason"]] += 1

    @property
    def both(self) -> list[Diversity]:
        return [group for group in self.groups if group.ari is not None]

    @property
    def changed(self) -> list[Diversity]:
        return [group for group in self.both if group.ari != 1.0 or group.degenerate]

    def show(self, console: Console, reported: Mapping[int, Mapping[str, Any]]) -> None:
        """Print counts, agreement, problems whose partitions differ, and the diversity numbers of run and steps.

        `reported` are the run's rows of metrics by step.
        """
        both, changed = self.both, self.changed
        then = sum(group.strategies[0] is not None for group in self.groups)
        now = sum(group.strategies[1] is not None for group in self.groups)
        say(console, f"{len(self.groups):,} groups: {then:,} had labels, {now:,} have some now")
        for reason, count in self.reasons.most_common(3):
            say(console, f"  {count:,} without labels now: {reason}")
        if both:
            interval = mean_interval([group.ari for group in both if group.ari is not None], SEED)
            differ = f"{len(changed):,} of {len(both):,} partitions differ" if changed else "no partition differs"
            around = f"{interval.low:.3f} to {interval.high:.3f}"
            say(console, f"{differ}; adjusted Rand index {interval.mean:.3f} (95 %: {around})")
        if changed:
            console.print(self._problem_table(changed))
        console.print(number_table(self._numbers(reported)))

    def _problem_table(self, changed: Sequence[Diversity]) -> Table:
        table = make_table(["problem"], ["groups that differ", "least ARI", "degenerate in one alone"])
        counts = Counter(group.problem_id for group in changed)
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
            own = [group for group in changed if group.problem_id == name]
            least = min(group.ari for group in own if group.ari is not None)
            table.add_row(Text(name), f"{count:,}", f"{least:.3f}", f"{sum(group.degenerate for group in own):,}")
        return table

    def _numbers(self, reported: Mapping[int, Mapping[str, Any]]) -> Iterator[ChangedNumber]:
        yield from _mean_numbers("training", self.groups, None)
        steps = sorted({group.step for group in self.changed})
        for step in steps[:SHOWN]:
            own = [group for group in self.groups if group.step == step]
            yield from _mean_numbers(f"step {step}", own, reported.get(step, {}).get("strategies"))


def _mean_numbers(of: str, groups: Sequence[Diversity], reported: float | None) -> Iterator[ChangedNumber]:
    """Distinct strategies of a group, and those of its correct programs."""
    compared = [group for group in groups if group.ari is not None]
    used = compared or groups
    for name, pairs in (
        ("strategies", [group.strategies for group in used]),
        ("correct strategies", [group.correct for group in used]),
    ):
        then, now = (_mean([pair[side] for pair in pairs]) for side in (0, 1))
        yield ChangedNumber(of, name, len(used), reported if name == "strategies" else None, then, now)


def _count_distinct(ids: Sequence[int] | None) -> float | None:
    return None if ids is None else float(distinct(ids))


def _count_correct(ids: Sequence[int] | None, passed: Sequence[bool]) -> float | None:
    if ids is None:
        return None
    named = [str(name) for name, right in zip(ids, passed, strict=True) if right and name]
    return drawn_strategies(len(ids), named)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
