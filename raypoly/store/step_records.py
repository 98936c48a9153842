"""What is kept of a step, one record for each finished stage of each group, and one for the applied update.

Generated --> Scored --> Judged --> Crossed    (at most one of each a slot, in this order)
Applied                                        (one a step, when the learner has taken it)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from raypoly.values import CrossLogprobs, Float64, Group, Labels, Verdict

Kind = Literal["generated", "scored", "judged", "crossed", "applied"]


@dataclass(frozen=True)
class Generated:
    """The group's rollouts, as sampled. What later stages add to `group` is not kept here."""

    group: Group
    kind: Kind = field(default="generated", init=False)

    @property
    def step(self) -> int:
        return self.group.step

    @property
    def slot(self) -> int:
        return self.group.slot


@dataclass(frozen=True)
class Scored:
    """The group's N verdicts."""

    step: int
    slot: int
    verdicts: tuple[Verdict, ...]
    kind: Kind = field(default="scored", init=False)


@dataclass(frozen=True)
class Judged:
    """The group's labels, or that the judge answered and could not label it (`labels` None: `unjudged`)."""

    step: int
    slot: int
    labels: Labels | None
    kind: Kind = field(default="judged", init=False)


@dataclass(frozen=True)
class Crossed:
    """The log-probabilities of the group's responses behind each of its prompts, for objectives that need them."""

    step: int
    slot: int
    cross_logprobs: CrossLogprobs
    kind: Kind = field(default="crossed", init=False)


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
    kind: Kind = field(default="applied", init=False)
    slot: int = field(default=-1, init=False)


Record = Generated | Scored | Judged | Crossed | Applied


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
    """By slot, each as far as it has come: `verdicts` None until scored, and so on."""
    applied: Applied | None
    """None until the learner has taken the step."""

    @property
    def keys(self) -> frozenset[tuple[int, Kind]]:
        """The (slot, kind) pairs that are committed and need no repeating."""
        keys: set[tuple[int, Kind]] = set()
        for slot, group in self.groups.items():
            keys.add((slot, "generated"))
            if group.verdicts is not None:
                keys.add((slot, "scored"))
            if group.labels is not None or group.unjudged:
                keys.add((slot, "judged"))
            if group.cross_logprobs is not None:
                keys.add((slot, "crossed"))
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


def assemble(step: int, records: Iterable[Record]) -> StepRecords:
    """The state that records, in the order of their commits, add up to.

    A record whose predecessor was lost to damage does not count, so that its stage is done again; the repeated
    record comes later in the order and counts. `Applied` does not count where a group that it was made of is gone.
    """
    groups: dict[int, Group] = {}
    applied: Applied | None = None
    for record in records:
        slot = record.slot
        group = groups.get(slot)
        if isinstance(record, Applied):
            applied = record if record.groups == len(groups) else applied
        elif isinstance(record, Generated):
            groups.setdefault(slot, record.group)
        elif isinstance(record, Scored):
            if group is not None and group.verdicts is None:
                groups[slot] = replace(group, verdicts=record.verdicts)
        elif isinstance(record, Crossed):
            if group is not None and group.cross_logprobs is None:
                groups[slot] = replace(group, cross_logprobs=record.cross_logprobs)
        elif group is not None and group.verdicts is not None and group.labels is None and not group.unjudged:
            groups[slot] = replace(group, labels=record.labels, unjudged=record.labels is None)
    return StepRecords(step, dict(sorted(groups.items())), applied)
