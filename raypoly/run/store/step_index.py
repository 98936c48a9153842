"""The index: what opening a run needs to know of the steps before the checkpoint, in few objects.

    index/steps-000000-000999.parquet  index/steps-001000-001099.parquet  index/steps-001100-001109.parquet

A segment has a row for each completed step (digest, metrics) and each evaluation (results) in its span. Spans are
aligned blocks of 10, 100, 1,000 ... steps, at most nine of a size: ten small segments become one larger one. The index
is derived from the rollout files: a lost segment is made again from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from raypoly.core.errors import CorruptData
from raypoly.run.store.catalogue import Span, segment_key
from raypoly.run.store.checked_parquet import decode_table, encode_table
from raypoly.run.store.sealed_json import SCHEMA, check_schema
from raypoly.run.store.step_records import Head

_SMALLEST = 10


@dataclass(frozen=True)
class Segment:
    """The content of one segment."""

    heads: Mapping[int, Head]
    evaluations: Mapping[tuple[int, str], Mapping[str, Any]]
    """Results by (step, split)."""


def index_spans(settled: int) -> tuple[Span, ...]:
    """The aligned blocks that index the first `settled` steps; fewer than ten steps are left over."""
    size = _SMALLEST
    while size * 10 <= settled:
        size *= 10
    found: list[Span] = []
    first = 0
    while size >= _SMALLEST:
        while first + size <= settled:
            found.append(Span(first, first + size - 1))
            first += size
        size //= 10
    return tuple(found)


def encode_segment(
    span: Span, heads: Iterable[Head], evaluations: Mapping[tuple[int, str], Mapping[str, Any]]
) -> bytes:
    """The bytes of a segment, with the heads and evaluations in its span."""
    rows: list[tuple[int, str | None, str | None, int | None, str]] = [
        (head.step, None, head.digest, head.groups, head.metrics) for head in heads if head.step in span.steps
    ]
    for (step, split), payload in sorted(evaluations.items()):
        if step in span.steps:
            rows.append((step, split, None, None, json.dumps(dict(payload))))
    names, types = zip(*_COLUMNS.items(), strict=True)
    arrays = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(types)]
    metadata = {"first": str(span.first), "last": str(span.last), "schema": str(SCHEMA)}
    return encode_table(pa.table(arrays, names=names), metadata)


def decode_segment(span: Span, data: bytes) -> Segment:
    """The inverse of `encode_segment`. Raises `CorruptData` if it is damaged or another span's; `NewerSchema`."""
    table, metadata = decode_table(data)
    check_schema(int(metadata.get("schema", "1")), segment_key(span))
    if (metadata.get("first"), metadata.get("last")) != (str(span.first), str(span.last)):
        raise CorruptData("it holds other steps than its name says")
    heads: dict[int, Head] = {}
    evaluations: dict[tuple[int, str], Mapping[str, Any]] = {}
    for step, split, digest, groups, content in zip(
        *(table.column(name).to_pylist() for name in _COLUMNS), strict=True
    ):
        if split is None:
            heads[step] = Head(step, digest, groups, content)
        else:
            evaluations[step, split] = json.loads(content)
    return Segment(heads, evaluations)


_COLUMNS = {
    "step": pa.int32(),
    "split": pa.string(),
    "digest": pa.string(),
    "groups": pa.int32(),
    "content": pa.string(),
}
"""`split` is null in a step's row; `content` is JSON: a step's metrics, an evaluation's results."""
