"""Names of a run's rollout and index files, and the index itself.

The index, `index/before-001100.parquet`, is what opening a run needs to know of the steps before the checkpoint: a row
for each step (digest, metrics) and each evaluation (results). A lost one is made again from the rollout files.
Steps count from 0.
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
_INDEX = re.compile(r"^index/before-(\d{6,9})\.parquet$")
Evaluations = Mapping[tuple[int, str], Mapping[str, Any]]
"""Results by (step, split)."""


def step_key(step: int) -> str:
    return f"{PREFIX}step-{step:06d}.parquet"


def evaluation_key(step: int, split: str) -> str:
    return f"{PREFIX}evaluation-{split}-step-{step:06d}.parquet"


def bundle_key(steps: range) -> str:
    return f"{PREFIX}steps-{steps[0]:06d}-{steps[-1]:06d}.parquet"


def index_key(before: int) -> str:
    return f"{INDEX}before-{before:06d}.parquet"


@dataclass(frozen=True)
class Catalogue:
    """The files in `rollouts/`."""

    singles: Mapping[int, str]
    """Keys of the steps that have a file of their own."""
    bundles: Mapping[range, str]
    """Keys by the steps in them."""
    evaluations: Mapping[tuple[int, str], str]
    """Keys by (step, split)."""
    strangers: tuple[str, ...]
    """Files that raypoly did not put there."""

    @classmethod
    def of(cls, keys: Iterable[str]) -> Catalogue:
        singles: dict[int, str] = {}
        bundles: dict[range, str] = {}
        evaluations: dict[tuple[int, str], str] = {}
        strangers: list[str] = []
        for key in keys:
            if match := _STEP.match(key):
                singles[int(match[1])] = key
            elif (match := _BUNDLE.match(key)) and int(match[1]) <= int(match[2]):
                bundles[range(int(match[1]), int(match[2]) + 1)] = key
            elif match := _EVALUATION.match(key):
                evaluations[int(match[2]), match[1]] = key
            else:
                strangers.append(key)
        return cls(singles, bundles, evaluations, tuple(strangers))

    @property
    def files(self) -> dict[int, str]:
        """The file of each step, ascending. A step's own file comes before a bundle."""
        bundled = {step: key for steps, key in self.bundles.items() for step in steps}
        return dict(sorted({**bundled, **self.singles}.items()))


def completed_steps(store: Store) -> tuple[int, ...]:
    """The steps whose rollouts are kept, ascending."""
    return tuple(Catalogue.of(store.list(f"{PREFIX}step")).files)


def indexed_before(key: str) -> int | None:
    """The step before which an index describes all; None if the key is no index's."""
    match = _INDEX.match(key)
    return int(match[1]) if match else None


def encode_index(before: int, heads: Iterable[Head], evaluations: Evaluations) -> bytes:
    """The bytes of the index of the steps before `before`, from all heads and evaluations."""
    rows: list[tuple[int, str | None, str | None, int | None, str]] = [
        (head.step, None, head.digest, head.groups, head.metrics) for head in heads if head.step < before
    ]
    for (step, split), payload in sorted(evaluations.items()):
        if step < before:
            rows.append((step, split, None, None, json.dumps(dict(payload))))
    arrays = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(_COLUMNS.values())]
    return encode_table(pa.table(arrays, names=list(_COLUMNS)), {"before": str(before)})


def decode_index(before: int, data: bytes) -> tuple[Mapping[int, Head], Evaluations]:
    """The inverse of `encode_index`. Raises `CorruptData` if it is damaged or of other steps; `OtherSchema`."""
    table, metadata = decode_table(data, index_key(before))
    if metadata.get("before") != str(before):
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
