"""The rollout files: Parquet, one row a rollout, readable by pyarrow alone, exact enough to train from. Drafts, where a
scaffold has any, are rows of their own, before their group's attempts; the column `role` tells them apart.

rollouts/step-000012.parquet                   a step, from its end until its bundle
rollouts/steps-000000-000099.parquet           a bundle of settled steps, a row group each, in order
rollouts/evaluation-test-step-000080.parquet   an evaluation, its results in the file's metadata

    files = RolloutFiles(store)
    files.table(12)            # Arrow, from step-000012.parquet or from its bundle
    files.step(12)             # as it was trained on

A bundle's metadata hold those of its steps' files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from raypoly.core.errors import CorruptData, StorageError
from raypoly.core.values import ATTEMPT, UNKNOWN, Float64, Group
from raypoly.run.store.catalogue import PREFIX, Catalogue, Span, evaluation_key, step_key
from raypoly.run.store.checked_parquet import decode_table, encode_table, encode_tables, open_checked
from raypoly.run.store.draft_columns import (
    attempts_alone,
    draft_columns,
    draft_of_column,
    draft_of_rows,
    drafts_alone,
    drafts_of,
)
from raypoly.run.store.record_encoding import runs
from raypoly.run.store.rollout_columns import (
    ON_DISK,
    cross_columns,
    extra_columns,
    extra_findings,
    finding_of_rows,
    labels_columns,
    migrated,
    padded,
    rollout_columns,
    rollouts_of,
    verdict_columns,
)
from raypoly.run.store.sealed_json import SCHEMA, check_schema
from raypoly.run.store.step_records import CompletedStep, Head
from raypoly.run.store.store import Store


@dataclass(frozen=True)
class Evaluation:
    """One committed evaluation."""

    step: int
    split: str
    payload: Mapping[str, Any]
    """Its results, as JSON values."""
    table: pa.Table
    """One row a sample."""


def read_step_table(store: Store, step: int) -> tuple[pa.Table, Mapping[str, str]]:
    """A step's own file as table and metadata. Raises `StorageError` where there is none, `CorruptData`."""
    key = step_key(step)
    table, metadata = _checked(store, key)
    if metadata.get("step") != str(step):
        raise CorruptData(f"{store.uri}/{key} holds step {metadata.get('step', '?')}.")
    return migrated(table), metadata


def read_evaluation(store: Store, step: int, split: str) -> Evaluation:
    """A committed evaluation. Raises `StorageError` where there is none, `CorruptData`, `NewerSchema`."""
    key = evaluation_key(step, split)
    table, metadata = _checked(store, key)
    if (metadata.get("step"), metadata.get("split")) != (str(step), split):
        raise CorruptData(f"{store.uri}/{key} holds another evaluation than its name says.")
    return Evaluation(step, split, json.loads(metadata["payload"]), table)


def encode_evaluation(step: int, split: str, payload: Mapping[str, Any], table: pa.Table) -> bytes:
    """The bytes of an evaluation's file."""
    metadata = {"step": str(step), "split": split, "payload": json.dumps(dict(payload)), "schema": str(SCHEMA)}
    return encode_table(table, metadata)


def encode_step(completed: CompletedStep) -> bytes:
    """The bytes of a step's rollout file. Every group is generated and scored."""
    table = _attempt_rows(completed)
    if any(group.drafts for group in completed.groups):
        table = _with_drafts(table, completed)
    return encode_table(table, {**metadata_of(Head.of(completed.applied)), "schema": str(SCHEMA)})


def _attempt_rows(completed: CompletedStep) -> pa.Table:
    groups = completed.groups
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    sizes = [group.size for group in groups]
    crossed = [group.cross_logprobs for group in groups]
    return pa.table(
        {
            **_places(completed.step, groups, sizes),
            **rollout_columns(rollouts),
            **verdict_columns([verdict for group in groups for verdict in group.verdicts or ()]),
            **labels_columns([group.labels for group in groups], sizes),
            "unjudged": pa.array(np.repeat([group.unjudged for group in groups], sizes), pa.bool_()),
            **(cross_columns(crossed, sizes) if any(crossed) else {}),
            **extra_columns(groups),
            **draft_of_column(groups),
            "reward": _numbers(completed.rewards, sizes),
            "advantage": _numbers(completed.advantages, sizes),
        }
    )


def _with_drafts(attempts: pa.Table, completed: CompletedStep) -> pa.Table:
    """The rows of attempts and, before those of each group, its drafts."""
    groups = completed.groups
    sizes = [len(group.drafts) for group in groups]
    unknown = [np.full(size, np.nan) for size in sizes]
    given = completed.draft_advantages or (None,) * len(groups)
    values = [none if own is None else own for own, none in zip(given, unknown, strict=True)]
    drafts = pa.table(
        {
            **_places(completed.step, groups, sizes),
            **draft_columns([draft for group in groups for draft in group.drafts]),
            **extra_columns(groups, drafts=True),
            "advantage": _numbers(values, sizes),
        }
    )
    roles = pa.array([ATTEMPT] * attempts.num_rows, pa.string())
    both = pa.concat_tables([drafts, attempts.append_column("role", roles)], promote_options="default")
    ordered = np.argsort(both.column("slot").to_numpy(), kind="stable")
    return both.take(pa.array(ordered))


def _places(step: int, groups: Sequence[Group], sizes: Sequence[int]) -> dict[str, pa.Array]:
    """The columns that say which rollout of which group a row is."""
    ids = [group.problem_id for group, size in zip(groups, sizes, strict=True) for _ in range(size)]
    return {
        "step": pa.array(np.full(sum(sizes), step), pa.int32()),
        "slot": pa.array(np.repeat([group.slot for group in groups], sizes), pa.int32()),
        "problem_id": pa.array(ids, pa.string()),
        "rollout": pa.array([index for size in sizes for index in range(size)], pa.int32()),
    }


def metadata_of(head: Head) -> dict[str, str]:
    """What a rollout file says of its step beside the rollouts."""
    return {"step": str(head.step), "digest": head.digest, "groups": str(head.groups), "metrics": head.metrics}


def head_of(metadata: Mapping[str, str], table: pa.Table | None = None) -> Head:
    """The inverse of `metadata_of`; files of schema 1 leave the groups to be counted in the table."""
    groups = metadata.get("groups") or (len(list(runs(table.column("slot")))) if table is not None else 0)
    return Head(int(metadata["step"]), metadata["digest"], int(groups), metadata["metrics"])


def read_head(data: bytes, step: int) -> Head:
    """The head in a step's own file, every byte of it checked. Raises `CorruptData`, `NewerSchema`."""
    file, metadata = open_checked(data)
    check_schema(int(metadata.get("schema", "1")), step_key(step))
    if metadata.get("step") != str(step):
        raise CorruptData(f"it holds step {metadata.get('step', '?')}")
    return head_of(metadata, None if "groups" in metadata else file.read(["slot"]))


def decode_step(table: pa.Table, head: Head) -> CompletedStep:
    """The inverse of `encode_step`."""
    found = [_group_of(head.step, slot, table.slice(start, end - start)) for slot, start, end in runs(table["slot"])]
    groups, rewards, advantages, of_drafts = zip(*found, strict=True) if found else ((), (), (), ())
    drafted = of_drafts if any(group.drafts for group in groups) else ()
    return CompletedStep(head.step, groups, rewards, advantages, head.applied, drafted)


def _group_of(step: int, slot: int, rows: pa.Table) -> tuple[Group, Float64, Float64, Float64 | None]:
    """A group with its rewards, its advantages, and those of its drafts."""
    attempts, drafts = attempts_alone(rows), drafts_alone(rows)
    group = Group(
        step,
        slot,
        rows.column("problem_id")[0].as_py(),
        rollouts_of(attempts),
        (_parts_of(attempts) if attempts.num_rows else {}) | dict(extra_findings(drafts) if drafts.num_rows else ()),
        drafts_of(drafts) if drafts.num_rows else (),
        draft_of_rows(attempts),
    )
    of_drafts = _values(drafts.column("advantage"))
    rewards, advantages = (_values(attempts.column(name)) for name in ("reward", "advantage"))
    return group, rewards, advantages, of_drafts if len(of_drafts) and np.isfinite(of_drafts).all() else None


def _parts_of(rows: pa.Table) -> dict[str, Any]:
    """What the stages found out about one group."""
    found = {stage: finding_of_rows(stage, rows) for stage in ON_DISK}
    if found["judge"] is UNKNOWN and not rows.column("unjudged")[0].as_py():
        found["judge"] = None  # nobody asked for labels
    return {name: part for name, part in found.items() if part is not None} | dict(extra_findings(rows))


def _checked(store: Store, key: str) -> tuple[pa.Table, dict[str, str]]:
    try:
        table, metadata = decode_table(store.read(key))
    except CorruptData as error:
        raise CorruptData(f"{store.uri}/{key} is damaged: {error}.") from error
    check_schema(int(metadata.get("schema", "1")), f"{store.uri}/{key}")
    return table, metadata


def _numbers(rows: Sequence[Float64], sizes: Sequence[int]) -> pa.Array:
    """One float64 column; NaN (unknown) becomes null."""
    if [len(row) for row in rows] != list(sizes):
        raise ValueError(f"one number a rollout is needed: groups of {list(sizes)}, got {[len(row) for row in rows]}")
    flat = np.concatenate([np.asarray(row, np.float64) for row in rows]) if rows else np.zeros(0)
    return pa.array(flat, pa.float64(), from_pandas=True)


def _values(column: pa.ChunkedArray) -> Float64:
    values: Float64 = column.to_numpy().astype(np.float64, copy=False)
    return values


BLOCK = 100
"""The most steps in a bundle, which never crosses a multiple of this."""
MAX_BYTES = 256 << 20
"""The approximate size limit of a bundle, which is read whole."""


@dataclass(frozen=True)
class Bundle:
    """A bundle whose checksum holds."""

    heads: Mapping[int, Head]
    file: Any

    @classmethod
    def parse(cls, data: bytes, span: Span, what: str) -> Bundle:
        """Raises `CorruptData` if it differs from what was written or holds other steps; `NewerSchema`."""
        file, metadata = open_checked(data)
        check_schema(int(metadata.get("schema", "1")), what)
        heads = [head_of(entry) for entry in json.loads(metadata.get("steps", "[]"))]
        if [head.step for head in heads] != list(span.steps):
            raise CorruptData("it holds other steps than its name says")
        return cls({head.step: head for head in heads}, file)

    def table(self, step: int) -> pa.Table:
        """The rollouts of one of its steps."""
        return self.file.read_row_group(list(self.heads).index(step), use_threads=False)


def encode_bundle(files: Mapping[int, bytes]) -> bytes:
    """A bundle's bytes from the valid rollout files of consecutive steps."""
    heads = [read_head(data, step) for step, data in files.items()]
    metadata = {"schema": str(SCHEMA), "steps": json.dumps([metadata_of(head) for head in heads])}
    found = (open_checked(data)[0].schema_arrow.remove_metadata() for data in files.values())
    schema = migrated(pa.unify_schemas(found).empty_table()).schema
    tables = (padded(migrated(decode_table(data)[0]), schema).cast(schema) for data in files.values())
    return encode_tables(schema, tables, metadata)


class RolloutFiles:
    """Reads a run's rollouts. Keeps the last bundle, so that reading its steps one by one reads it once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last: tuple[str, Bundle] | None = None

    def table(self, step: int) -> pa.Table:
        """A step's rollouts, one row each.

        Raises `StorageError` if there are none, `CorruptData` if they are damaged, `NewerSchema`.
        """
        return self._read(step)[0]

    def step(self, step: int) -> CompletedStep:
        """A completed step, bit for bit as it was trained on. Raises like `table`."""
        return decode_step(*self._read(step))

    def bundle(self, span: Span, key: str) -> Bundle:
        """A whole bundle. Raises like `table`."""
        if self._last is None or self._last[0] != key:
            try:
                self._last = key, Bundle.parse(self._store.read(key), span, f"{self._store.uri}/{key}")
            except CorruptData as error:
                raise CorruptData(f"{self._store.uri}/{key} is damaged: {error}.") from error
        return self._last[1]

    def _read(self, step: int) -> tuple[pa.Table, Head]:
        if self._store.exists(step_key(step)):
            try:
                table, metadata = read_step_table(self._store, step)
                return table, head_of(metadata, table)
            except StorageError:
                if self._store.exists(step_key(step)):  # else a live driver has just bundled it
                    raise
        for span, key in Catalogue.of(self._store.list(f"{PREFIX}steps-")).bundles.items():
            if step in span.steps:
                bundle = self.bundle(span, key)
                return migrated(bundle.table(step)), bundle.heads[step]
        raise StorageError(f"{self._store.uri} has no rollouts of step {step}.")
