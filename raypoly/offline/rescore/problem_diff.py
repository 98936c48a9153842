"""What changed, added up by problem, from the rows of groups that were scored again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

UNKNOWN = "unknown"


@dataclass
class ProblemDiff:
    """One problem's rollouts over the whole run."""

    rollouts: int = 0
    passed_then: int = 0
    passed_now: int = 0
    """Both of the rollouts whose verdicts are known on both sides."""
    unknown: int = 0
    """Rollouts without a verdict, then or now."""
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many rollouts went from which status to which; equal ones have another reward."""


@dataclass
class Diff:
    """All groups' rows in sum."""

    problems: dict[str, ProblemDiff] = field(default_factory=dict)
    groups: int = 0
    by_the_clock: int = 0
    """Of the changes, those that another run might not give."""
    strategies: int = 0
    """Correct programs whose strategy by execution is another one."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why groups have no verdict now, and how many."""

    def add(self, row: Mapping[str, Any]) -> None:
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
