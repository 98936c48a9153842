"""What a person reads after a run was scored again: what changed, by problem, and what that does to the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raypoly.offline.rescore.changed_numbers import ChangedNumber
from raypoly.offline.rescore.problem_diff import Diff
from raypoly.offline.rescore.stored_groups import StoredPart
from raypoly.offline.score.score_files import say

SHOWN = 40
"""Problems, and numbers of single steps, that are printed; `--out` has them all."""


def show(
    console: Console,
    parts: Sequence[StoredPart],
    diff: Diff,
    numbers: Sequence[ChangedNumber],
    overall: Sequence[ChangedNumber],
) -> None:
    """Counts, the problems with a change, and the numbers; where nothing differs, that alone."""
    steps = sum(part.training for part in parts)
    what = f"{_count(diff.rollouts, 'rollout')} of {_count(len(diff.problems), 'problem')}"
    where = f"{_count(steps, 'step')} and {_count(len(parts) - steps, 'evaluation')}"
    changes = diff.changes
    differ = f"{changes.total():,} differ" if changes else "none differs"
    say(console, f"{what} in {where}: {differ}" + (f", {diff.unknown:,} unknown" if diff.unknown else ""))
    for reason, groups in diff.reasons.most_common(3):
        say(console, f"  {_count(groups, 'group')} not scored: {reason}")
    if diff.by_the_clock:
        say(console, f"  {diff.by_the_clock:,} of them by the clock: another run may give another verdict")
    if diff.strategies:
        say(console, f"  {_count(diff.strategies, 'correct program')} with another strategy by execution")
    if changes:
        console.print(_changes(changes))
        console.print(_problems(diff))
        if len(diff.changed) > SHOWN:
            say(console, f"the first {SHOWN} of {len(diff.changed):,} problems are shown")
    moved = [number for number in numbers if number.change]
    training = [number for number in moved if number.of.startswith("step ")]
    rest = [*overall, *(number for number in numbers if not number.of.startswith("step "))]
    if rest:
        console.print(numbers_table([*rest, *training[:SHOWN]]))
    if len(training) > SHOWN:
        say(console, f"the first {SHOWN} of {len(training):,} numbers of steps that moved are shown")


def _changes(changes: Counter[tuple[str, str]]) -> Table:
    table = Table()
    for name in ("then", "now"):
        table.add_column(name)
    table.add_column("rollouts", justify="right")
    for (then, now), count in changes.most_common():
        table.add_row(then, now if now != then else f"{now}, another reward", f"{count:,}")
    return table


def _problems(diff: Diff) -> Table:
    table = Table()
    table.add_column("problem", overflow="fold")
    for name in ("rollouts", "passed then", "passed now"):
        table.add_column(name, justify="right")
    table.add_column("what changed", overflow="fold")
    for name, found in diff.changed[:SHOWN]:
        words = ", ".join(f"{count:,} {then} -> {now}" for (then, now), count in found.changes.most_common())
        counts = (found.rollouts, found.passed_then, found.passed_now)
        table.add_row(Text(name), *(f"{count:,}" for count in counts), words)
    return table


def numbers_table(numbers: Iterable[ChangedNumber]) -> Table:
    """A line for each; unknown ones are said to be."""
    table = Table()
    table.add_column("of", overflow="fold")
    table.add_column("number", no_wrap=True)
    for name in ("groups", "reported", "then", "now", "change"):
        table.add_column(name, justify="right")
    for number in numbers:
        values = ("-" if value is None else f"{value:.4f}" for value in (number.reported, number.then, number.now))
        change = "unknown" if number.change is None else f"{number.change:+.4f}" if number.change else "-"
        table.add_row(number.of, number.name, f"{number.groups:,}", *values, change)
    return table


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
