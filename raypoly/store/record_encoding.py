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

from raypoly.errors import CorruptData
from raypoly.store.rollout_columns import (
    cross_columns,
    cross_of,
    labels_columns,
    labels_of,
    rollout_columns,
    rollouts_of,
    verdict_columns,
    verdicts_of,
)
from raypoly.store.schema import SCHEMA, check_schema
from raypoly.store.step_records import Applied, Crossed, Generated, Judged, Kind, Record, Scored
from raypoly.values import Group

MAGIC = b"RAYPOLYJ"
_HEADER = struct.Struct("<8sI32s")
_LENGTH = struct.Struct("<Q")


def encode(step: int, number: int, records: Sequence[Record]) -> bytes:
    """The bytes of journal object `number` of `step`. All records are of that step."""
    if any(record.step != step for record in records):
        raise ValueError(f"records of another step than {step} can't share its journal object")
    sections: list[bytes] = []
    for kind, to_columns in _ENCODERS.items():
        chosen = [record for record in records if record.kind == kind]
        if chosen:
            metadata = {"kind": kind, "step": str(step), "number": str(number)}
            sections.append(_to_ipc(pa.table(to_columns(chosen)).replace_schema_metadata(metadata)))
    body = b"".join(_LENGTH.pack(len(section)) + section for section in sections)
    return _HEADER.pack(MAGIC, SCHEMA, _digest(SCHEMA, body)) + body


def decode(step: int, number: int, data: bytes) -> list[Record]:
    """The records in journal object `number` of `step`, generated before scored before judged before crossed
    before applied.

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
        kind: Any = metadata["kind"]
        records.extend(_DECODERS[kind](step, table))
    return records


def _sections(data: bytes, what: str) -> Iterator[memoryview]:
    """The IPC streams of a frame whose checksum holds."""
    if len(data) < _HEADER.size or not data.startswith(MAGIC):
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


def _generated_columns(records: Sequence[Generated]) -> dict[str, pa.Array]:
    rollouts = [rollout for record in records for rollout in record.group.rollouts]
    sizes = [record.group.size for record in records]
    return {
        "slot": pa.array(np.repeat([record.slot for record in records], sizes), pa.int32()),
        "problem_id": pa.array([r.group.problem_id for r in records for _ in r.group.rollouts], pa.string()),
        **rollout_columns(rollouts),
    }


def _generated_of(step: int, table: pa.Table) -> Iterator[Generated]:
    rollouts = rollouts_of(table)
    problem_ids = table.column("problem_id").to_pylist()
    for slot, start, end in runs(table.column("slot")):
        yield Generated(Group(step, slot, problem_ids[start], rollouts[start:end]))


def _scored_columns(records: Sequence[Scored]) -> dict[str, pa.Array]:
    sizes = [len(record.verdicts) for record in records]
    return {
        "slot": pa.array(np.repeat([record.slot for record in records], sizes), pa.int32()),
        **verdict_columns([verdict for record in records for verdict in record.verdicts]),
    }


def _scored_of(step: int, table: pa.Table) -> Iterator[Scored]:
    verdicts = verdicts_of(table)
    for slot, start, end in runs(table.column("slot")):
        yield Scored(step, slot, verdicts[start:end])


def _judged_columns(records: Sequence[Judged]) -> dict[str, pa.Array]:
    sizes = [1 if record.labels is None else len(record.labels.ids) for record in records]
    return {
        "slot": pa.array(np.repeat([record.slot for record in records], sizes), pa.int32()),
        **labels_columns([record.labels for record in records], sizes),
    }


def _judged_of(step: int, table: pa.Table) -> Iterator[Judged]:
    for slot, start, end in runs(table.column("slot")):
        yield Judged(step, slot, labels_of(table.slice(start, end - start)))


def _crossed_columns(records: Sequence[Crossed]) -> dict[str, pa.Array]:
    sizes = [len(record.cross_logprobs.own_prompt) for record in records]
    return {
        "slot": pa.array(np.repeat([record.slot for record in records], sizes), pa.int32()),
        **cross_columns([record.cross_logprobs for record in records], sizes),
    }


def _crossed_of(step: int, table: pa.Table) -> Iterator[Crossed]:
    for slot, start, end in runs(table.column("slot")):
        found = cross_of(table.slice(start, end - start))
        assert found is not None, "it is written with numbers alone"
        yield Crossed(step, slot, found)


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


_ENCODERS: Mapping[Kind, Callable[[Sequence[Any]], dict[str, pa.Array]]] = {
    "generated": _generated_columns,
    "scored": _scored_columns,
    "judged": _judged_columns,
    "crossed": _crossed_columns,
    "applied": _applied_columns,
}
_DECODERS: Mapping[Kind, Callable[[int, pa.Table], Iterator[Record]]] = {
    "generated": _generated_of,
    "scored": _scored_of,
    "judged": _judged_of,
    "crossed": _crossed_of,
    "applied": _applied_of,
}
