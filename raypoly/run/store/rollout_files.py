"""The rollout files: Parquet, one row a rollout, readable by pyarrow alone, exact enough to train from. Drafts, where a
scaffold has any, are rows of their own, before their group's attempts; the column `role` tells them apart.

rollouts/step-000012.parquet                   a step, from its end until its bundle
rollouts/steps-000000-000099.parquet           a bundle of settled steps, a row group or more each, in order
rollouts/evaluation-test-step-000080.parquet   an evaluation, its results in the file's metadata

    files = RolloutFiles(store)
    files.table(12)            # Arrow, from step-000012.parquet or from its bundle
    files.step(12)             # as it was trained on

What a row holds is `_attempt_rows` and, for drafts, `_with_drafts`; `_group_of` reads it back. The journal has the same
`rollout_columns`, an evaluation rows of its own (`evaluation_results`). After a change there, raise `SCHEMA`
(`sealed_files`), by which older runs are refused. A stage's columns come by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raypoly.core.errors import CorruptData, StorageError
from raypoly.core.values import ATTEMPT, UNKNOWN, Float32, Float64, Group, Labels
from raypoly.run.store.catalogue import PREFIX, Catalogue, Span, evaluation_key, step_key
from raypoly.run.store.rollout_columns import (
    attempts_alone,
    cross_of,
    draft_columns,
    draft_of_column,
    draft_of_rows,
    drafts_alone,
    drafts_of,
    extra_columns,
    extra_findings,
    finding_rows,
    known_verdict_columns,
    labels_columns,
    labels_of,
    rollout_columns,
    rollouts_of,
    stacked,
    token_columns,
    tokens_of,
    verdicts_of,
)
from raypoly.run.store.sealed_files import decode_table, encode_table, encode_tables, open_checked, write_tables
from raypoly.run.store.step_records import CompletedStep, Head, runs
from raypoly.run.store.store import Store

BLOCK = 100
"""The most steps in a bundle, which never crosses a multiple of this."""
MAX_BYTES = 256 << 20
"""The approximate size limit of a bundle, which is read whole."""
_PART_TOKENS = 1 << 20
"""Response tokens of a row group of a step that is written piece by piece."""
_NO_LABELS = pa.table(labels_columns(Labels(np.zeros(0, np.int32), np.zeros(0, np.bool_), "")))


def encode_step(completed: CompletedStep) -> bytes:
    """The bytes of a step's rollout file. Every group is generated and scored."""
    return encode_table(_step_table(completed, 0, len(completed.groups)), _steps_metadata([Head.of(completed.applied)]))


def is_large(completed: CompletedStep) -> bool:
    """Whether the step is of several row groups, and `write_step` holds less of it in memory."""
    return next(_parts(completed.groups), (0, 0))[1] < len(completed.groups)


def write_step(completed: CompletedStep, path: Path) -> None:
    """The same step in a local file, of several row groups, one in memory at a time. Raises `OSError`."""
    parts = list(_parts(completed.groups))

    def tables() -> Iterator[pa.Table]:
        return (_step_table(completed, *part) for part in parts)

    schema = pa.unify_schemas([table.schema for table in tables()])
    metadata = _steps_metadata([Head.of(completed.applied)], [len(parts)])
    write_tables(path, schema, (_padded(table, schema).cast(schema) for table in tables()), metadata)


def _parts(groups: Sequence[Group]) -> Iterator[tuple[int, int]]:
    """Neighbours, from and to, that together have `_PART_TOKENS` tokens, or one group."""
    start = tokens = 0
    for place, group in enumerate(groups):
        tokens += sum(len(rollout.tokens) for rollout in group.rollouts)
        if tokens >= _PART_TOKENS or place + 1 == len(groups):
            yield start, place + 1
            start, tokens = place + 1, 0


def _step_table(completed: CompletedStep, start: int, end: int) -> pa.Table:
    part = replace(
        completed,
        groups=tuple(map(completed.encode, completed.groups[start:end])),
        rewards=completed.rewards[start:end],
        advantages=completed.advantages[start:end],
        draft_advantages=completed.draft_advantages[start:end],
        token_advantages=completed.token_advantages[start:end],
    )
    table = _attempt_rows(part)
    return _with_drafts(table, part) if any(group.drafts for group in part.groups) else table


def _attempt_rows(completed: CompletedStep) -> pa.Table:
    groups, step = completed.groups, completed.step
    sizes = [group.size for group in groups]
    labels = stacked([_NO_LABELS, *(finding_rows("judge", group.labels, group.size) for group in groups)])
    crossed = [finding_rows("prompt_logprobs", group.cross_logprobs, group.size) for group in groups]
    return pa.table(
        {
            **_places(step, groups, sizes),
            **rollout_columns([rollout for group in groups for rollout in group.rollouts]),
            **known_verdict_columns([each for group in groups for each in group.verdicts or [None] * group.size]),
            **_without_state(labels),
            "unjudged": pa.array(np.repeat([group.unjudged for group in groups], sizes), pa.bool_()),
            **(_without_state(stacked(crossed)) if crossed else {}),
            **extra_columns(groups),
            **draft_of_column(groups),
            "reward": _numbers(completed.rewards, sizes),
            "advantage": _numbers(completed.advantages, sizes),
            **token_columns(completed.token_advantages, sizes),
        }
    )


def _without_state(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    return {name: column for name, column in columns.items() if name != "state"}


def _with_drafts(attempts: pa.Table, completed: CompletedStep) -> pa.Table:
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
    ids = [group.problem_id for group, size in zip(groups, sizes, strict=True) for _ in range(size)]
    return {
        "step": pa.array(np.full(sum(sizes), step), pa.int32()),
        "slot": pa.array(np.repeat([group.slot for group in groups], sizes), pa.int32()),
        "problem_id": pa.array(ids, pa.string()),
        "rollout": pa.array([index for size in sizes for index in range(size)], pa.int32()),
    }


def _numbers(rows: Sequence[Float64], sizes: Sequence[int]) -> pa.Array:
    """One float64 column; NaN (unknown) becomes null."""
    if [len(row) for row in rows] != list(sizes):
        raise ValueError(f"one number a rollout is needed: groups of {list(sizes)}, got {[len(row) for row in rows]}")
    flat = np.concatenate([np.asarray(row, np.float64) for row in rows]) if rows else np.zeros(0)
    return pa.array(flat, pa.float64(), from_pandas=True)


def decode_step(table: pa.Table, head: Head) -> CompletedStep:
    """The inverse of `encode_step`."""
    found = [_group_of(head.step, slot, table.slice(start, end - start)) for slot, start, end in runs(table["slot"])]
    groups, rewards, advantages, of_drafts, by_token = zip(*found, strict=True) if found else ((), (), (), (), ())
    drafted = of_drafts if any(group.drafts for group in groups) else ()
    return CompletedStep(
        head.step, groups, rewards, advantages, head.applied, drafted, by_token if any(by_token) else ()
    )


def _group_of(
    step: int, slot: int, rows: pa.Table
) -> tuple[Group, Float64, Float64, Float64 | None, Mapping[int, Float32]]:
    attempts, drafts = attempts_alone(rows), drafts_alone(rows)
    group = Group(
        step,
        slot,
        rows.column("problem_id")[0].as_py(),
        rollouts_of(attempts),
        (_findings_of(attempts) if attempts.num_rows else {}) | dict(extra_findings(drafts) if drafts.num_rows else ()),
        drafts_of(drafts) if drafts.num_rows else (),
        draft_of_rows(attempts),
    )
    of_drafts = _values(drafts.column("advantage"))
    rewards, advantages = (_values(attempts.column(name)) for name in ("reward", "advantage"))
    known = of_drafts if len(of_drafts) and np.isfinite(of_drafts).all() else None
    return group, rewards, advantages, known, tokens_of(attempts)


def _findings_of(rows: pa.Table) -> dict[str, Any]:
    unjudged = UNKNOWN if rows.column("unjudged")[0].as_py() else None
    scored = rows.column("status")[0].is_valid
    own = {
        "score": verdicts_of(rows) if scored else None,
        "judge": labels_of(rows) or unjudged,
        "prompt_logprobs": cross_of(rows),
    }
    return {name: finding for name, finding in own.items() if finding is not None} | dict(extra_findings(rows))


def _values(column: pa.ChunkedArray) -> Float64:
    values: Float64 = column.to_numpy().astype(np.float64, copy=False)
    return values


@dataclass(frozen=True)
class StepsFile:
    """A step's own file, or a bundle, whose checksum holds."""

    heads: Mapping[int, Head]
    file: pq.ParquetFile
    row_groups: Mapping[int, range]
    """Of the file, by step."""

    @classmethod
    def parse(cls, data: bytes, span: Span, what: str) -> StepsFile:
        """Only the footer is decoded.

        Raises `CorruptData` if it differs from what was written or holds other steps; `OtherSchema`.
        """
        file, metadata = open_checked(data, what)
        heads = [Head(**entry) for entry in json.loads(metadata.get("steps", "[]"))]
        if [head.step for head in heads] != list(span.steps):
            raise CorruptData("it holds other steps than its name says")
        ends = [0, *accumulate(json.loads(metadata.get("row_groups", "null")) or [1] * len(heads))]
        groups = {head.step: range(*pair) for head, pair in zip(heads, pairwise(ends), strict=True)}
        return cls({head.step: head for head in heads}, file, groups)

    def table(self, step: int) -> pa.Table:
        """The rollouts of one of its steps."""
        return self.file.read_row_groups(list(self.row_groups[step]), use_threads=False)

    def tables(self, step: int) -> Iterator[pa.Table]:
        """The same, a row group at a time."""
        return (self.file.read_row_group(number, use_threads=False) for number in self.row_groups[step])


def read_head(data: bytes, step: int) -> Head:
    """The head in a step's own file. Raises like `StepsFile.parse`."""
    return StepsFile.parse(data, Span(step, step), step_key(step)).heads[step]


def encode_bundle(files: Mapping[int, bytes]) -> bytes:
    """A bundle's bytes from the valid rollout files of consecutive steps."""
    parsed = {step: StepsFile.parse(data, Span(step, step), step_key(step)) for step, data in files.items()}
    schema = pa.unify_schemas([each.file.schema_arrow.remove_metadata() for each in parsed.values()])
    tables = (_padded(part, schema).cast(schema) for step, each in parsed.items() for part in each.tables(step))
    counts = [len(each.row_groups[step]) for step, each in parsed.items()]
    return encode_tables(schema, tables, _steps_metadata([each.heads[step] for step, each in parsed.items()], counts))


def _padded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field.name, pa.nulls(table.num_rows, field.type))
    return table.select(schema.names)


def _steps_metadata(heads: Sequence[Head], row_groups: Sequence[int] = ()) -> dict[str, str]:
    """`row_groups`: how many each step has, where not all have one."""
    more = {"row_groups": json.dumps(row_groups)} if set(row_groups) - {1} else {}
    return {"steps": json.dumps([asdict(head) for head in heads]), **more}


@dataclass(frozen=True)
class Evaluation:
    step: int
    split: str
    payload: Mapping[str, Any]
    table: pa.Table


def encode_evaluation(step: int, split: str, payload: Mapping[str, Any], table: pa.Table) -> bytes:
    return encode_table(table, {"step": str(step), "split": split, "payload": json.dumps(dict(payload))})


def read_evaluation(store: Store, step: int, split: str) -> Evaluation:
    """A committed evaluation. Raises `StorageError` where there is none, `CorruptData`, `OtherSchema`."""
    key = evaluation_key(step, split)
    try:
        table, metadata = decode_table(store.read(key), store.place(key))
        if (metadata.get("step"), metadata.get("split")) != (str(step), split):
            raise CorruptData("it holds another evaluation than its name says")
    except CorruptData as error:
        raise CorruptData(f"{store.place(key)} is damaged: {error}.") from error
    return Evaluation(step, split, json.loads(metadata["payload"]), table)


class RolloutFiles:
    """Reads a run's rollouts. Keeps the last bundle, so that reading its steps one by one reads it once.

    Where there are none, `StorageError` is raised, where they are damaged, `CorruptData`; `OtherSchema`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last: tuple[str, StepsFile] | None = None

    def table(self, step: int) -> pa.Table:
        return self._find(step).table(step)

    def step(self, step: int) -> CompletedStep:
        """A completed step, bit for bit as it was trained on."""
        found = self._find(step)
        return decode_step(found.table(step), found.heads[step])

    def bundle(self, span: Span, key: str) -> StepsFile:
        if self._last is None or self._last[0] != key:
            self._last = key, self._parsed(span, key)
        return self._last[1]

    def _find(self, step: int) -> StepsFile:
        if self._store.exists(step_key(step)):
            try:
                return self._parsed(Span(step, step), step_key(step))
            except StorageError:
                if self._store.exists(step_key(step)):  # else a live driver has just bundled it
                    raise
        for span, key in Catalogue.of(self._store.list(f"{PREFIX}steps-")).bundles.items():
            if step in span.steps:
                return self.bundle(span, key)
        raise StorageError(f"{self._store.uri} has no rollouts of step {step}.")

    def _parsed(self, span: Span, key: str) -> StepsFile:
        try:
            return StepsFile.parse(self._store.read(key), span, self._store.place(key))
        except CorruptData as error:
            raise CorruptData(f"{self._store.place(key)} is damaged: {error}.") from error
