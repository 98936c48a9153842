"""Parts of stages as Arrow columns, N rows a group: those of `score`, `judge` and `prompt_logprobs` have columns of
their own; any other stage's part is a `pyarrow.RecordBatch` of N rows, stored beside a column `state`.

    state       "known", "unknown", "skipped: why"; null where the stage did not run
    ...         the columns of the part, null where `state` is not "known"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from raypoly.store.rollout_columns import (
    cross_columns,
    cross_of,
    labels_columns,
    labels_of,
    verdict_columns,
    verdicts_of,
)
from raypoly.values import UNKNOWN, Group, Skipped

ON_DISK = {"score": "scored", "judge": "judged", "prompt_logprobs": "crossed"}
"""How journal objects call the stages with columns of their own."""
_STATE, _KNOWN, _UNKNOWN, _SKIPPED = "state", "known", "unknown", "skipped: "


def part_columns(stage: str, parts: Sequence[Any]) -> tuple[dict[str, pa.Array], list[int]]:
    """The columns of one stage's parts of several groups, and how many rows each of the groups has (one where nothing
    is known)."""
    if stage == "score":
        return verdict_columns([verdict for part in parts for verdict in part]), [len(part) for part in parts]
    if stage == "judge":
        labels = [None if part is UNKNOWN else part for part in parts]
        sizes = [1 if part is None else len(part.ids) for part in labels]
        return labels_columns(labels, sizes), sizes
    if stage == "prompt_logprobs":
        sizes = [len(part.own_prompt) for part in parts]
        return cross_columns(parts, sizes), sizes
    sizes = [part.num_rows if isinstance(part, pa.RecordBatch) else 1 for part in parts]
    table = _stacked(parts, sizes)
    return {name: table.column(name).combine_chunks() for name in table.column_names}, sizes


def part_of_rows(stage: str, table: pa.Table) -> Any:
    """The inverse of `part_columns`, from one group's rows; None where the stage did not run."""
    if stage == "score":
        return verdicts_of(table)
    if stage == "judge":
        return labels_of(table) or UNKNOWN
    if stage == "prompt_logprobs":
        return cross_of(table)
    state = table.column(_STATE)[0].as_py()
    if state is None or state == _UNKNOWN:
        return UNKNOWN if state else None
    if state.startswith(_SKIPPED):
        return Skipped(state.removeprefix(_SKIPPED))
    return table.drop_columns([_STATE]).combine_chunks().to_batches()[0]


def extra_columns(groups: Sequence[Group]) -> dict[str, pa.Array]:
    """The columns `stage/column` of whole groups, for the stages that have none of their own."""
    names = sorted({name for group in groups for name in group.parts} - ON_DISK.keys())
    found: dict[str, pa.Array] = {}
    for name in names:
        table = _stacked([group.parts.get(name) for group in groups], [group.size for group in groups])
        found |= {f"{name}/{column}": table.column(column).combine_chunks() for column in table.column_names}
    return found


def extra_parts(table: pa.Table) -> Iterator[tuple[str, Any]]:
    """The inverse of `extra_columns`, from one group's rows: stage and part."""
    for name in [each.removesuffix(f"/{_STATE}") for each in table.column_names if each.endswith(f"/{_STATE}")]:
        own = [each for each in table.column_names if each.startswith(f"{name}/")]
        part = part_of_rows(name, table.select(own).rename_columns([each.removeprefix(f"{name}/") for each in own]))
        if part is not None:
            yield name, part


def _stacked(parts: Sequence[Any], sizes: Sequence[int]) -> pa.Table:
    return pa.concat_tables(map(_rows, parts, sizes), promote_options="default")


def _rows(part: Any, size: int) -> pa.Table:
    state: str | None
    columns: dict[str, pa.Array] = {}
    if isinstance(part, pa.RecordBatch):
        if part.num_rows != size:
            raise ValueError(f"a group of {size} rollouts needs a part of {size} rows, got {part.num_rows}")
        state, columns = _KNOWN, dict(zip(part.schema.names, part.columns, strict=True))
    elif isinstance(part, Skipped):
        state = f"{_SKIPPED}{part.reason}"
    elif part is None or part is UNKNOWN:
        state = None if part is None else _UNKNOWN
    else:
        raise TypeError(f"a part is stored as a pyarrow.RecordBatch, got {type(part).__name__}")
    return pa.table({_STATE: pa.array([state] * size, pa.string()), **columns})
