"""The doctor's findings, one for each object, and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from raypoly.core.config import Config
from raypoly.run.store.lease import LeaseState
from raypoly.run.store.step_records import Head, Record

State = Literal["sound", "damaged", "missing", "foreign", "half-written", "set aside", "unchecked", "gone"]
"""`gone`: a live driver removed it during the examination. `unchecked`: derived files without a checksum."""
BAD: tuple[State, ...] = ("damaged", "missing")


@dataclass(frozen=True)
class Finding:
    """The state of one object."""

    area: str
    key: str
    state: State
    reason: str = ""
    """One clause for a person; empty if it is sound."""
    bytes: int = 0


@dataclass
class RunFacts:
    """The content of sound objects that the report needs, collected while they are checked."""

    config: Config | None = None
    checkpoints: set[int] = field(default_factory=set)
    """Steps whose checkpoints are sound in every file."""
    heads: dict[int, Head] = field(default_factory=dict)
    """Of the steps whose rollouts are sound, from their own file or bundle."""
    indexed: dict[int, tuple[str, Head]] = field(default_factory=dict)
    """By step: the key of the index's segment, and the head in it."""
    rows: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """metrics.jsonl, by step."""
    records: dict[int, dict[int, Sequence[Record]]] = field(default_factory=dict)
    """Of the steps in the journal, by object number."""


@dataclass(frozen=True)
class ResumePoint:
    """Where the same command would resume the run."""

    checkpoint: int | None
    """The checkpoint's step; None for the starting model."""
    replayed: int
    """How many completed steps the learner replays."""
    step: int
    """The step to go on with."""
    groups: Mapping[str, int]
    """Groups of that step, by their last committed stage: `generated, scored, judged`; `drafted` where some have drafts
    and no attempts yet."""
    of: int | None
    """Groups in a step; None if the config can't be read."""
    finished: bool
    refused: str
    """Why the command would refuse; empty if it would not."""
    command: str


@dataclass(frozen=True)
class DoctorReport:
    """Everything that an examination found."""

    uri: str
    name: str
    findings: Sequence[Finding]
    lease: LeaseState | None
    free_bytes: int
    """On the run's disk, or on the scratch folder's if the run is in remote storage."""
    resume: ResumePoint

    @property
    def damaged(self) -> bool:
        """Whether a committed object is damaged or missing, or the run can't resume."""
        return bool(self.resume.refused) or any(finding.state in BAD for finding in self.findings)
