"""The changes after a run was scored again, added up by problem from its groups' rows and shown in tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from raypoly.commands.offline.command_output import SHOWN, count_of, say
from raypoly.commands.offline.rescore.changed_numbers import ChangedNumber
from raypoly.commands.offline.rescore.stored_groups import StoredPart
from raypoly.commands.offline.row_writer import Row
from raypoly.core.tables import DASH, ReportTable

UNKNOWN = "unknown"


@dataclass
class ProblemDiff:
    """One problem's rollouts over the whole run."""

    rollouts: int = 0
    passed_then: int = 0
    passed_now: int = 0
    """Both count rollouts whose verdicts are known on both sides."""
    unknown: int = 0
    """Rollouts without a verdict, then or now."""
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rollouts by (status then, status now); equal ones have another reward."""


@dataclass
class VerdictDiff:
    """The rows of all groups, added up."""

    problems: dict[str, ProblemDiff] = field(default_factory=dict)
    groups: int = 0
    by_the_clock: int = 0
    """Changes that another run might not give."""
    strategies: int = 0
    """Correct programs whose strategy by execution differs."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why groups have no verdict now, and how many."""

    def add(self, row: Row) -> None:
        found = self.problems.setdefault(row["problem_id"], ProblemDiff())
        then, now = row["then"], row["now"]
        self.groups += 1
        if "reason" in row:
            self.reasons[row["reason"]] += 1
        statuses = now["statuses"] if now else [UNKNOWN] * len(then["statuses"])
        for place, (before, after) in enumerate(zip(then["statuses"], statuses, strict=True)):
            found.rollouts += 1
            if "infra" in (before, after) or after == UNKNOWN:
                found.unknown += 1
                continue
            found.passed_then += before == "passed"
            found.passed_now += after == "passed"
            named = {then["strategies"][place], now["strategies"][place]}
            self.strategies += before == after == "passed" and len(named - {None}) > 1
        for change in row["changed"]:
            found.changes[change["then"], change["now"]] += 1
            self.by_the_clock += not change["repeatable"]

    @property
    def rollouts(self) -> int:
        return sum(found.rollouts for found in self.problems.values())

    @property
    def unknown(self) -> int:
        return sum(found.unknown for found in self.problems.values())

    @property
    def changes(self) -> Counter[tuple[str, str]]:
        return sum((found.changes for found in self.problems.values()), Counter())

    @property
    def changed(self) -> list[tuple[str, ProblemDiff]]:
        """Problems with a change, most changes first."""
        found = [(name, diff) for name, diff in self.problems.items() if diff.changes]
        return sorted(found, key=lambda item: (-item[1].changes.total(), item[0]))

    def show(
        self,
        console: Console,
        parts: Sequence[StoredPart],
        numbers: Sequence[ChangedNumber],
        overall: Sequence[ChangedNumber],
    ) -> None:
        """Print counts, the problems with a change, and the numbers; where nothing differs, that alone."""
        self._show_counts(console, parts)
        if changes := self.changes:
            console.print(_change_table(changes))
            console.print(_problem_table(self.changed[:SHOWN]))
            if len(self.changed) > SHOWN:
                say(console, f"the first {SHOWN} of {len(self.changed):,} problems are shown")
        moved = [number for number in numbers if number.change and number.of.startswith("step ")]
        rest = [*overall, *(number for number in numbers if not number.of.startswith("step "))]
        if rest:
            console.print(number_table([*rest, *moved[:SHOWN]]))
        if len(moved) > SHOWN:
            say(console, f"the first {SHOWN} of {len(moved):,} numbers of steps that moved are shown")

    def _show_counts(self, console: Console, parts: Sequence[StoredPart]) -> None:
        steps = sum(part.training for part in parts)
        what = f"{count_of(self.rollouts, 'rollout')} of {count_of(len(self.problems), 'problem')}"
        where = f"{count_of(steps, 'step')} and {count_of(len(parts) - steps, 'evaluation')}"
        total = self.changes.total()
        differ = f"{total:,} differ" if total else "none differs"
        say(console, f"{what} in {where}: {differ}" + (f", {self.unknown:,} unknown" if self.unknown else ""))
        for reason, groups in self.reasons.most_common(3):
            say(console, f"  {count_of(groups, 'group')} not scored: {reason}")
        if self.by_the_clock:
            say(console, f"  {self.by_the_clock:,} of them by the clock: another run may give another verdict")
        if self.strategies:
            say(console, f"  {count_of(self.strategies, 'correct program')} with another strategy by execution")


def number_table(numbers: Iterable[ChangedNumber]) -> Table:
    """A line for each number; `-` or `unknown` where it is not known."""
    rows = []
    for number in numbers:
        values = (DASH if value is None else f"{value:.4f}" for value in (number.reported, number.then, number.now))
        change = "unknown" if number.change is None else f"{number.change:+.4f}" if number.change else DASH
        rows.append((number.of, number.name, f"{number.groups:,}", *values, change))
    head = ("of", "number", "groups", "reported", "then", "now", "change")
    table = ReportTable(head, rows, range(2, len(head))).rich()
    table.columns[1].no_wrap = True
    return table


def _change_table(changes: Counter[tuple[str, str]]) -> ReportTable:
    rows = [
        (then, now if now != then else f"{now}, another reward", f"{count:,}")
        for (then, now), count in changes.most_common()
    ]
    return ReportTable(("then", "now", "rollouts"), rows, {2})


def _problem_table(changed: Sequence[tuple[str, ProblemDiff]]) -> ReportTable:
    rows = []
    for name, found in changed:
        words = ", ".join(f"{count:,} {then} -> {now}" for (then, now), count in found.changes.most_common())
        counts = (found.rollouts, found.passed_then, found.passed_now)
        rows.append((name, *(f"{count:,}" for count in counts), words))
    return ReportTable(("problem", "rollouts", "passed then", "passed now", "what changed"), rows, {1, 2, 3})
