"""Names of a run's rollout and index files, and the index itself.

The index is what opening a run needs to know of the steps before the checkpoint, in few objects:

    index/steps-000000-000999.parquet  index/steps-001000-001099.parquet  index/steps-001100-001109.parquet

A segment has a row for each step (digest, metrics) and each evaluation (results) in its span, a block of 10, 100, 1,000
... steps. A lost segment is made again from the rollout files. Steps count from 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from raypoly.core.errors import CorruptData
from raypoly.run.store.sealed_files import decode_table, encode_table
from raypoly.run.store.step_records import Head
from raypoly.run.store.store import Store

PREFIX = "rollouts/"
INDEX = "index/"
_STEP = re.compile(r"^rollouts/step-(\d{6,9})\.parquet$")
_BUNDLE = re.compile(r"^rollouts/steps-(\d{6,9})-(\d{6,9})\.parquet$")
_EVALUATION = re.compile(r"^rollouts/evaluation-([^/]+)-step-(\d{6,9})\.parquet$")
_SEGMENT = re.compile(r"^index/steps-(\d{6,9})-(\d{6,9})\.parquet$")
_SMALLEST = 10
Evaluations = Mapping[tuple[int, str], Mapping[str, Any]]
"""Results by (step, split)."""


@dataclass(frozen=True, order=True)
class Span:
    """Consecutive steps, `first` and `last` included."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def covers(self, other: Span) -> bool:
        return self.first <= other.first and other.last <= self.last

    @property
    def steps(self) -> range:
        return range(self.first, self.last + 1)


def step_key(step: int) -> str:
    return f"{PREFIX}step-{step:06d}.parquet"


def evaluation_key(step: int, split: str) -> str:
    return f"{PREFIX}evaluation-{split}-step-{step:06d}.parquet"


def bundle_key(span: Span) -> str:
    return f"{PREFIX}steps-{span.first:06d}-{span.last:06d}.parquet"


def segment_key(span: Span) -> str:
    return f"{INDEX}steps-{span.first:06d}-{span.last:06d}.parquet"


@dataclass(frozen=True)
class Catalogue:
    """The files in `rollouts/`."""

    singles: Mapping[int, str]
    """Keys of the steps that have a file of their own."""
    bundles: Mapping[Span, str]
    evaluations: Mapping[tuple[int, str], str]
    """Keys by (step, split)."""
    strangers: tuple[str, ...]
    """Files that raypoly did not put there."""

    @classmethod
    def of(cls, keys: Iterable[str]) -> Catalogue:
        singles: dict[int, str] = {}
        bundles: dict[Span, str] = {}
        evaluations: dict[tuple[int, str], str] = {}
        strangers: list[str] = []
        for key in keys:
            if match := _STEP.match(key):
                singles[int(match[1])] = key
            elif match := _BUNDLE.match(key):
                bundles[Span(int(match[1]), int(match[2]))] = key
            elif match := _EVALUATION.match(key):
                evaluations[int(match[2]), match[1]] = key
            else:
                strangers.append(key)
        return cls(singles, bundles, evaluations, tuple(strangers))

    @property
    def files(self) -> dict[int, str]:
        """The file of each step, ascending. A step's own file comes before a bundle."""
        bundled = {step: key for span, key in self.bundles.items() for step in span.steps}
        return dict(sorted({**bundled, **self.singles}.items()))


def completed_steps(store: Store) -> tuple[int, ...]:
    """The steps whose rollouts are kept, ascending."""
    return tuple(Catalogue.of(store.list(f"{PREFIX}step")).files)


def parse_segments(keys: Iterable[str]) -> tuple[dict[Span, str], tuple[str, ...]]:
    """The index's segments by their spans, and the files in `index/` that are no segments."""
    matches = {key: _SEGMENT.match(key) for key in keys}
    found = {Span(int(match[1]), int(match[2])): key for key, match in matches.items() if match}
    return found, tuple(key for key, match in matches.items() if match is None)


def index_spans(settled: int) -> tuple[Span, ...]:
    """The blocks that index the first `settled` steps; fewer than ten are left over."""
    # Largest blocks first. There are at most nine of a size, since ten small segments become one larger one.
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


def encode_segment(span: Span, heads: Iterable[Head], evaluations: Evaluations) -> bytes:
    """A segment's bytes; of the heads and evaluations those in its span."""
    rows: list[tuple[int, str | None, str | None, int | None, str]] = [
        (head.step, None, head.digest, head.groups, head.metrics) for head in heads if head.step in span.steps
    ]
    for (step, split), payload in sorted(evaluations.items()):
        if step in span.steps:
            rows.append((step, split, None, None, json.dumps(dict(payload))))
    arrays = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(_COLUMNS.values())]
    metadata = {"first": str(span.first), "last": str(span.last)}
    return encode_table(pa.table(arrays, names=list(_COLUMNS)), metadata)


def decode_segment(span: Span, data: bytes) -> tuple[Mapping[int, Head], Evaluations]:
    """The inverse of `encode_segment`. Raises `CorruptData` if it is damaged or another span's; `OtherSchema`."""
    table, metadata = decode_table(data, segment_key(span))
    if (metadata.get("first"), metadata.get("last")) != (str(span.first), str(span.last)):
        raise CorruptData("it holds other steps than its name says")
    heads: dict[int, Head] = {}
    evaluations: dict[tuple[int, str], Mapping[str, Any]] = {}
    for row in table.to_pylist():
        step, split, digest, groups, content = (row[name] for name in _COLUMNS)
        if split is None:
            heads[step] = Head(step, digest, groups, content)
        else:
            evaluations[step, split] = json.loads(content)
    return heads, evaluations


# `split` is null in a step's row; `content` is JSON: a step's metrics, an evaluation's results.
_COLUMNS = {
    "step": pa.int32(),
    "split": pa.string(),
    "digest": pa.string(),
    "groups": pa.int32(),
    "content": pa.string(),
}
