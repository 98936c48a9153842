"""What is kept of a step: a record for each part of each group, and one for the applied update.

Drafted --> Generated --> StageFinding of one stage after another    (at most one of each a slot; a Drafted a round)
Applied                                                           (one a step, when the learner has taken it)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from raypoly.core.values import Draft, Float64, Group

DRAFTED = "drafted-"
"""What the kind of a `Drafted` begins with; the round follows."""


@dataclass(frozen=True)
class Drafted:
    """The drafts of one round of a group, in the order in which they were asked for."""

    step: int
    slot: int
    round: int
    drafts: tuple[Draft, ...]

    @property
    def kind(self) -> str:
        return f"{DRAFTED}{self.round}"


@dataclass(frozen=True)
class Generated:
    """The group's rollouts, as sampled. Parts of `group` are not kept here, its drafts by their `Drafted`."""

    group: Group
    drafts: int | None = None
    """D, of which this does not count if one is lost to damage. Default: those of `group`."""
    kind: str = field(default="generated", init=False)

    def __post_init__(self) -> None:
        if self.drafts is None:
            object.__setattr__(self, "drafts", len(self.group.drafts))

    @property
    def step(self) -> int:
        return self.group.step

    @property
    def slot(self) -> int:
        return self.group.slot


@dataclass(frozen=True)
class StageFinding:
    """What one stage found out about one group."""

    step: int
    slot: int
    kind: str
    """The stage's name."""
    finding: Any
    """`UNKNOWN`, `Skipped`, or the finding: a tuple of `Verdict` (`score`), `Labels` (`judge`), `CrossLogprobs`
    (`prompt_logprobs`), and a `pyarrow.RecordBatch` of N rows for any other stage."""
    after: tuple[str, ...] = ()
    """The stages whose findings it was made from: where one of them is lost to damage, this does not count."""


@dataclass(frozen=True)
class Applied:
    """The learner has taken the step: the digest of its new weights and the step's row of metrics."""

    step: int
    digest: str
    """Hex digest of the weights after the update."""
    metrics: Mapping[str, Any]
    """The step's row in `metrics.jsonl`; JSON values only."""
    groups: int = 0
    """How many groups the update was made of; the journal fills it in."""
    kind: str = field(default="applied", init=False)
    slot: int = field(default=-1, init=False)


Record = Drafted | Generated | StageFinding | Applied


@dataclass(frozen=True)
class Head:
    """What is known of a completed step without its rollouts; `metrics` is text, so that thousands take little."""

    step: int
    digest: str
    groups: int
    metrics: str
    """JSON."""

    @property
    def applied(self) -> Applied:
        return Applied(self.step, self.digest, json.loads(self.metrics), self.groups)

    @classmethod
    def of(cls, applied: Applied) -> Head:
        return cls(applied.step, applied.digest, applied.groups, json.dumps(dict(applied.metrics)))


@dataclass(frozen=True)
class StepRecords:
    """What is committed of one step."""

    step: int
    groups: Mapping[int, Group]
    """By slot, each as far as it has come."""
    applied: Applied | None
    """None until the learner has taken the step."""
    drafts: Mapping[int, tuple[tuple[Draft, ...], ...]] = field(default_factory=dict)
    """By slot and round."""

    @property
    def keys(self) -> frozenset[tuple[int, str]]:
        """The (slot, kind) pairs that are committed and need no repeating."""
        keys = {(slot, kind) for slot, group in self.groups.items() for kind in ("generated", *group.findings)}
        keys |= {(slot, f"{DRAFTED}{i}") for slot, rounds in self.drafts.items() for i in range(len(rounds))}
        if self.applied is not None:
            keys.add((self.applied.slot, self.applied.kind))
        return frozenset(keys)


@dataclass(frozen=True)
class CompletedStep:
    """A whole step as its rollout file keeps it: enough to repeat the learner's update exactly."""

    step: int
    groups: tuple[Group, ...]
    """In slot order."""
    rewards: tuple[Float64, ...]
    """float64 [N] for each group; NaN where a reward is unknown."""
    advantages: tuple[Float64, ...]
    """float64 [N] for each group."""
    applied: Applied
    draft_advantages: tuple[Float64 | None, ...] = ()
    """float64 [D] for each group, None where its drafts were not trained; empty if no group has drafts."""


def assemble(step: int, records: Iterable[Record]) -> StepRecords:
    """The state that records, in the order of their commits, add up to.

    A record whose predecessor was lost to damage does not count, so that its stage is done again; the repeated
    record comes later in the order and counts. `Applied` does not count where a group that it was made of is gone.
    """
    groups: dict[int, Group] = {}
    drafts: dict[int, tuple[tuple[Draft, ...], ...]] = {}
    applied: Applied | None = None
    for record in records:
        group, rounds = groups.get(record.slot), drafts.get(record.slot, ())
        if isinstance(record, Applied):
            applied = record if record.groups == len(groups) else applied
        elif isinstance(record, Drafted):
            if record.round == len(rounds):
                drafts[record.slot] = (*rounds, record.drafts)
        elif isinstance(record, Generated):
            made = tuple(chain.from_iterable(rounds))
            if len(made) == record.drafts:
                groups.setdefault(record.slot, replace(record.group, drafts=made))
        elif group is not None and record.kind not in group.findings and group.findings.keys() >= set(record.after):
            groups[record.slot] = group.with_findings(**{record.kind: record.finding})
    return StepRecords(step, dict(sorted(groups.items())), applied, drafts)
