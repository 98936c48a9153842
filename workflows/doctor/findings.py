"""What the doctor found: one finding an object, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from raypoly.config import Config
from raypoly.store.lease_probe import LeaseState
from raypoly.store.step_records import Head, Record

State = Literal["sound", "damaged", "missing", "foreign", "half-written", "set aside", "unchecked", "gone"]
"""`gone`: a live driver removed it while it was looked at. `unchecked`: derived files that carry no checksum."""
BAD: tuple[State, ...] = ("damaged", "missing")


@dataclass(frozen=True)
class Finding:
    """One object."""

    area: str
    key: str
    state: State
    reason: str = ""
    """One clause for a person; empty where all is well."""
    bytes: int = 0


@dataclass
class RunFacts:
    """What sound objects say; filled while they are checked."""

    config: Config | None = None
    checkpoints: set[int] = field(default_factory=set)
    """Steps whose checkpoints are sound in every file."""
    heads: dict[int, Head] = field(default_factory=dict)
    """Of the steps whose rollouts are sound, by what their own file or bundle says."""
    indexed: dict[int, tuple[str, Head]] = field(default_factory=dict)
    """Key of the index's segment, and what it says of the step."""
    rows: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """metrics.jsonl, by step."""
    records: dict[int, dict[int, Sequence[Record]]] = field(default_factory=dict)
    """Of the steps in the journal, by object number."""


@dataclass(frozen=True)
class ResumePoint:
    """Where the same command would go on."""

    checkpoint: int | None
    """Its step; None for the starting model."""
    replayed: int
    """Completed steps that the learner goes through again."""
    step: int
    """The step that it goes on with."""
    groups: Mapping[str, int]
    """Of that step, by the last stage that is committed: `generated, scored, judged`."""
    of: int | None
    """Groups of a step; None where the config can't be read."""
    finished: bool
    refused: str
    """Why it would not go on; else empty."""
    command: str


@dataclass(frozen=True)
class DoctorReport:
    """All of it."""

    uri: str
    findings: Sequence[Finding]
    lease: LeaseState | None
    free_bytes: int
    """On the disk of the run, or of the scratch where it is in remote storage."""
    resume: ResumePoint

    @property
    def damaged(self) -> bool:
        """Whether something that was committed is not what it was."""
        return bool(self.resume.refused) or any(finding.state in BAD for finding in self.findings)
