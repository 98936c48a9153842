"""The rows of V: what one says of a program, and what all of them say in sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from raypoly.errors import SandboxError
from raypoly.scoring.program_queue import BROKEN
from raypoly.scoring.score_programs import Program
from raypoly.values import Verdict


def verdict_row(program: Program, verdict: Verdict, evidence: bool) -> dict[str, Any]:
    """A program's row of V."""
    row = {
        "id": program.id,
        "status": verdict.status,
        "passed": verdict.passed,
        "tests_passed": verdict.tests_passed,
        "tests_total": verdict.tests_total,
        "cpu_seconds": round(verdict.cpu_seconds, 6),
        "detail": verdict.detail,
        "failure": None if verdict.failure is None else asdict(verdict.failure),
        "problem_id": program.problem_id,
    }
    if evidence:
        row["evidence"] = None if verdict.evidence is None else {**vars(verdict.evidence)}
    return row


@dataclass
class Tally:
    """What the rows of V say in sum."""

    statuses: Counter[str] = field(default_factory=Counter)
    unknown: list[Mapping[str, Any]] = field(default_factory=list)
    """The first row that is the sandbox's fault."""
    failed: int = 0
    broken: set[str] = field(default_factory=set)
    """Problems whose tests can't be run."""

    @property
    def programs(self) -> int:
        return self.statuses.total()

    def add(self, row: Mapping[str, Any]) -> None:
        self.statuses[row["status"]] += 1
        if row["status"] == "infra" and row["detail"].startswith(BROKEN):
            self.broken.add(row["problem_id"])
        elif row["status"] == "infra":
            self.failed += 1
            self.unknown = self.unknown or [row]

    def complain(self) -> None:
        """Raises `SandboxError` where programs have no verdict."""
        sentences = []
        if self.broken:
            count, first = len(self.broken), min(self.broken)
            sentences.append(
                f"The tests of {count} problem{'s' if count > 1 else ''} can't be run ({first!r}"
                f"{' is one' if count > 1 else ''}); raypoly score --validate finds them."
            )
        if self.failed:
            row = self.unknown[0]
            sentences.append(
                f"The sandbox failed on {self.failed} program{'s' if self.failed > 1 else ''},"
                f" the first {row['id']!r} ({row['detail']}); give the command again."
            )
        if sentences:
            raise SandboxError(" ".join(sentences))
