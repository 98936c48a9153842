"""Records of a step (one for each finding about each group, one for the applied update) and their journal objects.

Drafted --> Turned --> Generated --> StageFinding of one stage after another (at most one of each a slot; a Drafted a
                                     round, a Turned a turn of each rollout)
Applied                                                           (one a step, when the learner has taken it)

A journal object holds records of one step: a frame around one Arrow IPC stream for each kind.

    magic (8) | schema (u32) | SHA-256 of schema and streams (32) | { length (u64) | Arrow IPC stream } ...
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from raypoly.core.errors import CorruptData
from raypoly.core.values import Draft, Float32, Float64, Group, Rollout
from raypoly.run.store.rollout_columns import (
    DRAFT_OF,
    draft_columns,
    drafts_of,
    finding_of_rows,
    finding_rows,
    rollout_columns,
    rollouts_of,
    stacked,
)
from raypoly.run.store.sealed_files import SCHEMA, check_schema

DRAFTED = "drafted-"
"""What the kind of a `Drafted` begins with; the round follows."""
TURNED = "turned"
"""What the kind of a `Turned` begins with; place and turn follow."""


@dataclass(frozen=True)
class Drafted:
    """The drafts of one round of a group, in the order of their requests."""

    step: int
    slot: int
    round: int
    drafts: tuple[Draft, ...]

    @property
    def kind(self) -> str:
        return f"{DRAFTED}{self.round}"


@dataclass(frozen=True)
class Turned:
    """A rollout of several turns, as far as it has come: a turn of the policy and what answered it are new."""

    step: int
    slot: int
    place: int
    rollout: Rollout
    drafts: int = 0
    """D: this does not count if a draft is lost to damage."""

    @property
    def kind(self) -> str:
        return _turned(self.place, self.rollout)


@dataclass(frozen=True)
class Generated:
    """The group's rollouts, as sampled; its drafts are kept by their `Drafted`."""

    group: Group
    drafts: int | None = None
    """D: this does not count if a draft is lost to damage. Default: those of `group`."""
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
    step: int
    slot: int
    kind: str
    finding: Any
    """`UNKNOWN`, `Skipped`, or the finding: a tuple of `Verdict` (`score`), `Labels` (`judge`), `CrossLogprobs`
    (`prompt_logprobs`), and a `pyarrow.RecordBatch` of N rows for any other stage."""
    after: tuple[str, ...] = ()
    """The stages that it was made from: if a finding of theirs is lost to damage, this does not count."""


@dataclass(frozen=True)
class Applied:
    step: int
    digest: str
    """Of the weights after the update."""
    metrics: Mapping[str, Any]
    """The step's row in `metrics.jsonl`; JSON values only."""
    groups: int = 0
    """Filled in by the journal."""
    kind: str = field(default="applied", init=False)
    slot: int = field(default=-1, init=False)


Record = Drafted | Turned | Generated | StageFinding | Applied


@dataclass(frozen=True)
class Head:
    """A completed step without its rollouts."""

    step: int
    digest: str
    groups: int
    metrics: str
    """JSON, not parsed: thousands of them are held in memory."""

    @property
    def applied(self) -> Applied:
        return Applied(self.step, self.digest, json.loads(self.metrics), self.groups)

    @classmethod
    def of(cls, applied: Applied) -> Head:
        return cls(applied.step, applied.digest, applied.groups, json.dumps(dict(applied.metrics)))


@dataclass(frozen=True)
class StepRecords:
    step: int
    groups: Mapping[int, Group]
    """By slot, each as far as it has come."""
    applied: Applied | None
    """None until the learner has taken the step."""
    drafts: Mapping[int, tuple[tuple[Draft, ...], ...]] = field(default_factory=dict)
    """By slot and round."""
    conversations: Mapping[int, Mapping[int, Rollout]] = field(default_factory=dict)
    """By slot and place, each as far as it has come, of groups that are not generated."""

    @property
    def keys(self) -> frozenset[tuple[int, str]]:
        """The (slot, kind) pairs that are committed and need no repeating."""
        keys = {(slot, kind) for slot, group in self.groups.items() for kind in ("generated", *group.findings)}
        keys |= {(slot, f"{DRAFTED}{i}") for slot, rounds in self.drafts.items() for i in range(len(rounds))}
        keys |= {(slot, _turned(i, it)) for slot, own in self.conversations.items() for i, it in own.items()}
        if self.applied is not None:
            keys.add((self.applied.slot, self.applied.kind))
        return frozenset(keys)


@dataclass(frozen=True)
class CompletedStep:
    """A whole step: enough to repeat the learner's update exactly."""

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
    token_advantages: tuple[Mapping[int, Float32], ...] = ()
    """float32 [T] by place for each group: the attempts with one advantage a token, whose mean `advantages` has; empty
    if there are none."""
    encode: Callable[[Group], Group] = field(default=lambda group: group, compare=False)
    """A group as the store keeps it, made when it is written: all of them may be more than fits into memory."""


def assemble(step: int, records: Iterable[Record]) -> StepRecords:
    """The state that records, in the order of their commits, add up to."""
    # A record whose predecessor was lost to damage does not count, so that its stage is done again; the repeated record
    # comes later and counts. `Applied` does not count where a group that it was made of is gone.
    groups: dict[int, Group] = {}
    drafts: dict[int, tuple[tuple[Draft, ...], ...]] = {}
    talks: dict[int, dict[int, Rollout]] = {}
    applied: Applied | None = None
    for record in records:
        group, rounds = groups.get(record.slot), drafts.get(record.slot, ())
        if isinstance(record, Applied):
            applied = record if record.groups == len(groups) else applied
        elif isinstance(record, Drafted):
            if record.round == len(rounds):
                drafts[record.slot] = (*rounds, record.drafts)
        elif isinstance(record, Turned):
            if sum(map(len, rounds)) == record.drafts:
                talks.setdefault(record.slot, {})[record.place] = record.rollout  # each has those before it
        elif isinstance(record, Generated):
            made = tuple(chain.from_iterable(rounds))
            if len(made) == record.drafts:
                groups.setdefault(record.slot, replace(record.group, drafts=made))
        elif group is not None and record.kind not in group.findings and group.findings.keys() >= set(record.after):
            groups[record.slot] = group.with_findings(**{record.kind: record.finding})
    open_ = {slot: own for slot, own in talks.items() if slot not in groups}
    return StepRecords(step, dict(sorted(groups.items())), applied, drafts, open_)


_MAGIC = b"RAYPOLYJ"
_HEADER = struct.Struct("<8sI32s")
_LENGTH = struct.Struct("<Q")
_ENDED = -2  # in `draft_of`: the row of a group without attempts
_NO_ATTEMPT = Rollout.of_text("")


def encode(step: int, number: int, records: Sequence[Record]) -> bytes:
    """The bytes of journal object `number` of `step`. All records are of that step."""
    if any(record.step != step for record in records):
        raise ValueError(f"records of another step than {step} can't share its journal object")
    sections: list[bytes] = []
    for kind in dict.fromkeys(map(_section_of, records)):
        table = _table_of(kind, [record for record in records if _section_of(record) == kind])
        metadata = {"kind": kind, "step": str(step), "number": str(number)}
        sections.append(_to_ipc(table.replace_schema_metadata(metadata)))
    body = b"".join(_LENGTH.pack(len(section)) + section for section in sections)
    return _HEADER.pack(_MAGIC, SCHEMA, _digest(SCHEMA, body)) + body


def decode(step: int, number: int, data: bytes) -> list[Record]:
    """The records in journal object `number` of `step`, each kind in the order of its first.

    Raises `CorruptData` where the bytes are not what was written, or are another object's; `OtherSchema`.
    """
    records: list[Record] = []
    for section in _sections(data, f"journal object {number} of step {step}"):
        table = pa.ipc.open_stream(section).read_all()
        metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        # A sound object in another's place, as a restored backup may have it, is damage too.
        if metadata["step"] != str(step):
            raise CorruptData(f"it holds records of step {metadata['step']}, not of {step}")
        if metadata["number"] != str(number):
            raise CorruptData(f"it is number {metadata['number']} of step {step} under another's name")
        records.extend(_records_of(metadata["kind"], step, table.replace_schema_metadata(None)))
    return records


def _table_of(kind: str, records: Sequence[Any]) -> pa.Table:
    if kind == "applied":
        return _applied_table(records)
    if kind == "generated":
        return _generated_table(records)
    if kind == TURNED:
        numbers = {n: pa.array([getattr(it, n) for it in records], pa.int32()) for n in ("slot", "place", "drafts")}
        return pa.table({**numbers, **rollout_columns([record.rollout for record in records])})
    if not kind.startswith(DRAFTED):
        return _findings_table(kind, records)
    drafts = draft_columns([draft for record in records for draft in record.drafts])
    return pa.table({"slot": _slots(records, [len(record.drafts) for record in records]), **drafts})


def _records_of(kind: str, step: int, table: pa.Table) -> Iterator[Record]:
    if kind == "applied":
        for row in table.to_pylist():
            yield Applied(step, row["digest"], json.loads(row["metrics"]), row["groups"])
    elif kind == "generated":
        yield from _generated_of(step, table)
    elif kind == TURNED:
        slots, places, drafts = (table.column(name).to_pylist() for name in ("slot", "place", "drafts"))
        for slot, place, rollout, made in zip(slots, places, rollouts_of(table), drafts, strict=True):
            yield Turned(step, slot, place, rollout, made)
    else:
        for slot, start, end in runs(table.column("slot")):
            rows = table.slice(start, end - start)
            if kind.startswith(DRAFTED):
                yield Drafted(step, slot, int(kind.removeprefix(DRAFTED)), drafts_of(rows))
            else:
                after = tuple(json.loads(rows.column("after")[0].as_py()))
                finding = finding_of_rows(kind, rows.drop_columns(["slot", "after"]))
                yield StageFinding(step, slot, kind, finding, after)


def _generated_table(records: Sequence[Generated]) -> pa.Table:
    """A group without attempts has a row that says so."""
    groups = [record.group for record in records]
    sizes = [max(group.size, 1) for group in groups]
    parents = [group.draft_of if group.size else np.full(1, _ENDED, np.int32) for group in groups]
    return pa.table(
        {
            "slot": _slots(records, sizes),
            "problem_id": pa.array(np.repeat([group.problem_id for group in groups], sizes).tolist(), pa.string()),
            **rollout_columns([rollout for group in groups for rollout in group.rollouts or (_NO_ATTEMPT,)]),
            DRAFT_OF: pa.array(np.concatenate(parents), pa.int32()),
            "drafts": pa.array(np.repeat([record.drafts or 0 for record in records], sizes), pa.int32()),
        }
    )


def _generated_of(step: int, table: pa.Table) -> Iterator[Generated]:
    rollouts, parents = rollouts_of(table), table.column(DRAFT_OF).to_numpy()
    problem_ids, counts = (table.column(name).to_pylist() for name in ("problem_id", "drafts"))
    for slot, start, end in runs(table.column("slot")):
        last = start if parents[start] == _ENDED else end
        group = Group(step, slot, problem_ids[start], rollouts[start:last], draft_of=parents[start:last])
        yield Generated(group, counts[start])


def _findings_table(stage: str, records: Sequence[StageFinding]) -> pa.Table:
    tables = [finding_rows(stage, record.finding) for record in records]
    sizes = [table.num_rows for table in tables]
    after = np.repeat([json.dumps(record.after) for record in records], sizes)
    slots = _slots(records, sizes)
    return pa.table({"slot": slots, "after": pa.array(after.tolist(), pa.string()), **stacked(tables)})


def _applied_table(records: Sequence[Applied]) -> pa.Table:
    return pa.table(
        {
            "digest": pa.array([record.digest for record in records], pa.string()),
            "metrics": pa.array([json.dumps(dict(record.metrics)) for record in records], pa.string()),
            "groups": pa.array([record.groups for record in records], pa.int32()),
        }
    )


def _section_of(record: Record) -> str:
    return TURNED if isinstance(record, Turned) else record.kind


def _turned(place: int, rollout: Rollout) -> str:
    return f"{TURNED}-{place}-{len(rollout.own_turns)}"


def _slots(records: Sequence[Record], sizes: Sequence[int]) -> pa.Array:
    return pa.array(np.repeat([record.slot for record in records], sizes), pa.int32())


def runs(slots: pa.ChunkedArray) -> Iterator[tuple[int, int, int]]:
    """(slot, start, end) of each run of equal slots."""
    values = slots.to_numpy()
    starts = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
        yield int(values[start]), int(start), int(end)


def _sections(data: bytes, what: str) -> Iterator[memoryview]:
    """The IPC streams of a frame whose checksum holds."""
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        raise CorruptData("it is no journal object, or was cut short")
    _, schema, digest = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if _digest(schema, body) != digest:
        raise CorruptData("its checksum does not match its content")
    check_schema(schema, what)
    while body:
        (length,) = _LENGTH.unpack_from(body)
        yield body[_LENGTH.size : _LENGTH.size + length]
        body = body[_LENGTH.size + length :]


def _digest(schema: int, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(schema.to_bytes(4, "little"))
    digest.update(body)
    return digest.digest()


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
