"""Records as Arrow tables, and tables as checksummed bytes.

One journal object holds records of one step: a frame around one Arrow IPC stream for each kind.

    magic (8) | schema version (u32) | SHA-256 (32) | { length (u64) | Arrow IPC stream } ...

The checksum is over the version and the streams; in version 1 it was over the streams alone, and they did not say
which number their object has.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from raypoly.core.errors import CorruptData
from raypoly.core.values import Group, Rollout
from raypoly.run.store.draft_columns import DRAFT_OF, draft_columns, drafts_of
from raypoly.run.store.rollout_columns import ON_DISK, finding_columns, finding_of_rows, rollout_columns, rollouts_of
from raypoly.run.store.sealed_json import SCHEMA, check_schema
from raypoly.run.store.step_records import DRAFTED, Applied, Drafted, Generated, Record, StageFinding

_MAGIC = b"RAYPOLYJ"
_HEADER = struct.Struct("<8sI32s")
_LENGTH = struct.Struct("<Q")


def encode(step: int, number: int, records: Sequence[Record]) -> bytes:
    """The bytes of journal object `number` of `step`. All records are of that step."""
    if any(record.step != step for record in records):
        raise ValueError(f"records of another step than {step} can't share its journal object")
    sections: list[bytes] = []
    for kind in sorted({record.kind for record in records}, key=_order):
        chosen: list[Any] = [record for record in records if record.kind == kind]
        if kind.startswith(DRAFTED):
            columns = _drafted_columns(chosen)
        else:
            columns = _ENCODERS[kind](chosen) if kind in _ENCODERS else _part_columns(kind, chosen)
        metadata = {"kind": ON_DISK.get(kind, kind), "step": str(step), "number": str(number)}
        sections.append(_to_ipc(pa.table(columns).replace_schema_metadata(metadata)))
    body = b"".join(_LENGTH.pack(len(section)) + section for section in sections)
    return _HEADER.pack(_MAGIC, SCHEMA, _digest(SCHEMA, body)) + body


def decode(step: int, number: int, data: bytes) -> list[Record]:
    """The records in journal object `number` of `step`: rollouts before parts, parts before the applied update.

    Raises `CorruptData` where the bytes are not what was written, or are another object's; `NewerSchema`.
    """
    records: list[Record] = []
    for section in _sections(data, f"journal object {number} of step {step}"):
        table = pa.ipc.open_stream(section).read_all()
        metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
        if metadata.get("step") != str(step):
            raise CorruptData(f"it holds records of step {metadata.get('step', '?')}, not of {step}")
        if metadata.get("number", str(number)) != str(number):
            raise CorruptData(f"it is number {metadata['number']} of step {step} under another's name")
        kind = _STAGES.get(metadata["kind"], metadata["kind"])
        table = table.replace_schema_metadata(None)
        if kind.startswith(DRAFTED):
            records.extend(_drafted_of(step, int(kind.removeprefix(DRAFTED)), table))
        else:
            records.extend(_DECODERS[kind](step, table) if kind in _DECODERS else _parts_of(kind, step, table))
    return records


def _sections(data: bytes, what: str) -> Iterator[memoryview]:
    """The IPC streams of a frame whose checksum holds."""
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        raise CorruptData("it is no journal object, or was cut short")
    _, version, digest = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if _digest(version, body) != digest:
        raise CorruptData("its checksum does not match its content")
    check_schema(version, what)
    while body:
        (length,) = _LENGTH.unpack_from(body)
        yield body[_LENGTH.size : _LENGTH.size + length]
        body = body[_LENGTH.size + length :]


def _digest(version: int, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(b"" if version == 1 else version.to_bytes(4, "little"))
    digest.update(body)
    return digest.digest()


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _drafted_columns(records: Sequence[Drafted]) -> dict[str, pa.Array]:
    slots = np.repeat([record.slot for record in records], [len(record.drafts) for record in records])
    return {
        "slot": pa.array(slots, pa.int32()),
        **draft_columns([draft for record in records for draft in record.drafts]),
    }


def _drafted_of(step: int, number: int, table: pa.Table) -> Iterator[Drafted]:
    for slot, start, end in runs(table.column("slot")):
        yield Drafted(step, slot, number, drafts_of(table.slice(start, end - start)))


def _generated_columns(records: Sequence[Generated]) -> dict[str, pa.Array]:
    """A group without attempts has a row that says so."""
    groups = [record.group for record in records]
    rollouts = [rollout for group in groups for rollout in group.rollouts or (_NO_ATTEMPT,)]
    sizes = [max(group.size, 1) for group in groups]
    columns = {
        "slot": pa.array(np.repeat([group.slot for group in groups], sizes), pa.int32()),
        "problem_id": pa.array(np.repeat([group.problem_id for group in groups], sizes).tolist(), pa.string()),
        **rollout_columns(rollouts),
    }
    if not any(record.drafts for record in records):
        return columns
    parents = np.concatenate([group.draft_of if group.size else np.full(1, _ENDED, np.int32) for group in groups])
    counts = np.repeat([record.drafts or 0 for record in records], sizes)
    return {**columns, DRAFT_OF: pa.array(parents, pa.int32()), "drafts": pa.array(counts, pa.int32())}


def _generated_of(step: int, table: pa.Table) -> Iterator[Generated]:
    rollouts = rollouts_of(table)
    problem_ids = table.column("problem_id").to_pylist()
    drafted = DRAFT_OF in table.column_names
    parents = table.column(DRAFT_OF).to_numpy() if drafted else np.full(len(rollouts), -1, np.int32)
    counts = table.column("drafts").to_pylist() if drafted else [0] * len(rollouts)
    for slot, start, end in runs(table.column("slot")):
        last = start if parents[start] == _ENDED else end
        group = Group(step, slot, problem_ids[start], rollouts[start:last], draft_of=parents[start:last])
        yield Generated(group, counts[start])


def _part_columns(stage: str, records: Sequence[StageFinding]) -> dict[str, pa.Array]:
    columns, sizes = finding_columns(stage, [record.finding for record in records])
    slots = {"slot": pa.array(np.repeat([record.slot for record in records], sizes), pa.int32())}
    if stage in ON_DISK:
        return {**slots, **columns}
    after = [json.dumps(record.after) for record in records]
    return {**slots, _AFTER: pa.array(np.repeat(after, sizes).tolist(), pa.string()), **columns}


def _parts_of(stage: str, step: int, table: pa.Table) -> Iterator[StageFinding]:
    for slot, start, end in runs(table.column("slot")):
        rows = table.slice(start, end - start)
        after = ("score",) if stage == "judge" else ()
        if _AFTER in rows.column_names:
            after = tuple(json.loads(rows.column(_AFTER)[0].as_py()))
            rows = rows.drop_columns(["slot", _AFTER])
        yield StageFinding(step, slot, stage, finding_of_rows(stage, rows), after)


def _applied_columns(records: Sequence[Applied]) -> dict[str, pa.Array]:
    return {
        "digest": pa.array([record.digest for record in records], pa.string()),
        "metrics": pa.array([json.dumps(dict(record.metrics)) for record in records], pa.string()),
        "groups": pa.array([record.groups for record in records], pa.int32()),
    }


def _applied_of(step: int, table: pa.Table) -> Iterator[Applied]:
    for row in table.to_pylist():
        yield Applied(step, row["digest"], json.loads(row["metrics"]), row["groups"])


def runs(slots: pa.ChunkedArray) -> Iterator[tuple[int, int, int]]:
    """(slot, start, end) of each run of equal slots."""
    values = slots.to_numpy()
    starts = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
        yield int(values[start]), int(start), int(end)


_ENDED = -2
"""In `draft_of`: the row of a group without attempts."""
_NOTHING = np.zeros(0, np.int32)
_NO_ATTEMPT = Rollout(_NOTHING, _NOTHING, np.zeros(0, np.float32), "", "stop", 0, 0)
_AFTER = "after"
"""The column with the stages that a part was made from, as JSON."""
_STAGES = {kept: stage for stage, kept in ON_DISK.items()}
_ENCODERS: Mapping[str, Callable[[Sequence[Any]], dict[str, pa.Array]]] = {
    "generated": _generated_columns,
    "applied": _applied_columns,
}
_DECODERS: Mapping[str, Callable[[int, pa.Table], Iterator[Record]]] = {
    "generated": _generated_of,
    "applied": _applied_of,
}


def _order(kind: str) -> tuple[int, str]:
    """Drafts by round, rollouts, the parts of `score`, `judge` and `prompt_logprobs`, then others, the update last."""
    if kind.startswith(DRAFTED):
        return (-1, kind.removeprefix(DRAFTED).zfill(6))
    known = ("generated", *ON_DISK)
    return (known.index(kind) if kind in known else len(known) + (kind == "applied"), kind)
