"""Rollouts and the findings of stages as Arrow columns, one row a rollout; token arrays as int32 and float32 lists.

Every value comes back with the same bits. Text that UTF-8 can't hold (lone surrogates in a program's message) is
kept with backslash escapes in its place.

Findings of `score`, `judge` and `prompt_logprobs` have columns of their own. A finding of any other stage is a
`pyarrow.RecordBatch` of N rows, stored beside a column `state`:

    state       "known", "unknown", "skipped: why"; null where the stage did not run
    ...         the columns of the finding, null where `state` is not "known"
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raypoly.core.values import UNKNOWN, CrossLogprobs, Evidence, Failure, Group, Labels, Rollout, Skipped, Verdict

_LATER = {
    "failure": pa.string(),
    "features": pa.list_(pa.string()),
    "repeatable": pa.bool_(),
}
"""Columns that earlier raypolys did not write."""


def migrated(table: pa.Table) -> pa.Table:
    """The table with every column of today; null, which reads as unknown, where its writer did not know it yet."""
    for name, kind in _LATER.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
    return table


def padded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of that schema, in its order; null where the table has none of the name."""
    missing = [field for field in schema if field.name not in table.column_names]
    for field in missing:
        table = table.append_column(field.name, pa.nulls(table.num_rows, field.type))
    return table.select(schema.names)


def rollout_columns(rollouts: Sequence[Rollout]) -> dict[str, pa.Array]:
    """The sampling side of each rollout."""
    return {
        "prompt_tokens": lists([rollout.prompt_tokens for rollout in rollouts], np.dtype(np.int32)),
        "tokens": lists([rollout.tokens for rollout in rollouts], np.dtype(np.int32)),
        "logprobs": lists([rollout.logprobs for rollout in rollouts], np.dtype(np.float32)),
        "text": strings([rollout.text for rollout in rollouts]),
        "finish_reason": pa.array([rollout.finish_reason for rollout in rollouts], pa.string()),
        "seed": pa.array([rollout.seed for rollout in rollouts], pa.uint64()),
        "weight_version": pa.array([rollout.weight_version for rollout in rollouts], pa.int32()),
    }


def rollouts_of(table: pa.Table) -> tuple[Rollout, ...]:
    """The inverse of `rollout_columns`."""
    columns = (
        arrays(table.column("prompt_tokens")),
        arrays(table.column("tokens")),
        arrays(table.column("logprobs")),
        *(table.column(name).to_pylist() for name in ("text", "finish_reason", "seed", "weight_version")),
    )
    return tuple(Rollout(*row) for row in zip(*columns, strict=True))


def verdict_columns(verdicts: Sequence[Verdict]) -> dict[str, pa.Array]:
    """Verdicts with their evidence; `canonical` .. `features` are null where there is none."""
    found = [verdict.evidence for verdict in verdicts]
    constructs = [None if e is None else [_text(c) for c in e.constructs] for e in found]
    features = [None if e is None else list(e.features) for e in found]
    return {
        "status": pa.array([verdict.status for verdict in verdicts], pa.string()),
        "tests_passed": pa.array([verdict.tests_passed for verdict in verdicts], pa.int32()),
        "tests_total": pa.array([verdict.tests_total for verdict in verdicts], pa.int32()),
        "cpu_seconds": pa.array([verdict.cpu_seconds for verdict in verdicts], pa.float64()),
        "detail": strings([verdict.detail for verdict in verdicts]),
        "canonical": strings([None if e is None else e.canonical for e in found]),
        "constructs": pa.array(constructs, pa.list_(pa.string())),
        "growth": strings([None if e is None else json.dumps(dict(e.growth)) for e in found]),
        "strategy": strings([None if e is None else e.strategy for e in found]),
        "features": pa.array(features, pa.list_(pa.string())),
        "failure": strings([None if v.failure is None else json.dumps(astuple(v.failure)) for v in verdicts]),
        "repeatable": pa.array([verdict.repeatable for verdict in verdicts], pa.bool_()),
    }


def verdicts_of(table: pa.Table) -> tuple[Verdict, ...]:
    """The inverse of `verdict_columns`, of tables that earlier raypolys wrote too."""
    table = migrated(table)
    found = (table.column(name).to_pylist() for name in ("canonical", "constructs", "growth", "strategy", "features"))
    evidence = map(_evidence, *found)
    names = ("status", "tests_passed", "tests_total", "cpu_seconds", "detail")
    columns = (table.column(name).to_pylist() for name in names)
    failures = (None if text is None else Failure(*json.loads(text)) for text in table.column("failure").to_pylist())
    repeatable = (value is not False for value in table.column("repeatable").to_pylist())
    return tuple(Verdict(*row) for row in zip(*columns, evidence, failures, repeatable, strict=True))


def _evidence(
    canonical: str | None, constructs: list[str], growth: str, strategy: str, features: list[str] | None
) -> Evidence | None:
    if canonical is None:
        return None
    return Evidence(canonical, tuple(constructs), json.loads(growth), strategy, tuple(features or ()))


def labels_columns(labels: Sequence[Labels | None], sizes: Sequence[int]) -> dict[str, pa.Array]:
    """Labels of several groups of the given sizes; null throughout for a group without."""
    ids: list[Any] = []
    degenerate: list[Any] = []
    judges: list[str | None] = []
    for label, size in zip(labels, sizes, strict=True):
        ids.extend(repeat(None, size) if label is None else label.ids.tolist())
        degenerate.extend(repeat(None, size) if label is None else label.degenerate.tolist())
        judges.extend(repeat(None if label is None else label.judge, size))
    return {
        "label": pa.array(ids, pa.int32()),
        "degenerate": pa.array(degenerate, pa.bool_()),
        "judge": strings(judges),
    }


def labels_of(table: pa.Table) -> Labels | None:
    """The labels of one group's rows; None where they are null."""
    judge = table.column("judge")[0].as_py()
    if judge is None:
        return None
    ids = np.array(table.column("label").to_pylist(), np.int32)
    return Labels(ids, np.array(table.column("degenerate").to_pylist(), np.bool_), judge)


def cross_columns(found: Sequence[CrossLogprobs | None], sizes: Sequence[int]) -> dict[str, pa.Array]:
    """Log-probabilities of several groups of the given sizes: a prompt's number, and [P, T] as one list, row by row.
    Null and empty for a group without."""
    own: list[Any] = []
    rows: list[NDArray[np.float32]] = []
    for cross, size in zip(found, sizes, strict=True):
        own.extend(repeat(None, size) if cross is None else cross.own_prompt.tolist())
        rows.extend(repeat(np.zeros(0, np.float32), size) if cross is None else map(np.ravel, cross.logprobs))
    return {"own_prompt": pa.array(own, pa.int32()), "cross_logprobs": lists(rows, np.dtype(np.float32))}


def cross_of(table: pa.Table) -> CrossLogprobs | None:
    """The log-probabilities of one group's rows; None if they are null or have no columns."""
    if "own_prompt" not in table.column_names or table.column("own_prompt")[0].as_py() is None:
        return None
    own = table.column("own_prompt").to_numpy().astype(np.int32)
    rows = arrays(table.column("cross_logprobs"))
    return CrossLogprobs(own, tuple(row.reshape(int(own.max()) + 1, -1) for row in rows))


def lists(rows: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> pa.Array:
    """A list column from flat values and offsets; no Python number is made on the way."""
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    values = np.concatenate(rows).astype(dtype, copy=False, casting="same_kind") if rows else np.zeros(0, dtype)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def arrays(column: pa.ChunkedArray) -> list[NDArray[Any]]:
    """The rows of a list column, as views on one array that nobody may write to."""
    whole = column.combine_chunks()
    parts = whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]
    rows: list[NDArray[Any]] = []
    for part in parts:
        offsets = part.offsets.to_numpy()
        values = part.values.to_numpy()
        rows.extend(values[start:end] for start, end in pairwise(offsets))
    return rows


def strings(texts: Sequence[str | None]) -> pa.Array:
    """A string column; None is null."""
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        return pa.array([None if text is None else _text(text) for text in texts], pa.string())


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


ON_DISK = {"score": "scored", "judge": "judged", "prompt_logprobs": "crossed"}
"""How journal objects call the stages with columns of their own."""
_STATE, _KNOWN, _UNKNOWN, _SKIPPED = "state", "known", "unknown", "skipped: "


def finding_columns(stage: str, findings: Sequence[Any]) -> tuple[dict[str, pa.Array], list[int]]:
    """The columns of one stage's findings of several groups, and how many rows each of the groups has (one where
    nothing is known)."""
    if stage == "score":
        return verdict_columns([verdict for finding in findings for verdict in finding]), [
            len(finding) for finding in findings
        ]
    if stage == "judge":
        labels = [None if finding is UNKNOWN else finding for finding in findings]
        sizes = [1 if finding is None else len(finding.ids) for finding in labels]
        return labels_columns(labels, sizes), sizes
    if stage == "prompt_logprobs":
        sizes = [len(finding.own_prompt) for finding in findings]
        return cross_columns(findings, sizes), sizes
    sizes = [finding.num_rows if isinstance(finding, pa.RecordBatch) else 1 for finding in findings]
    table = _stacked(findings, sizes)
    return {name: table.column(name).combine_chunks() for name in table.column_names}, sizes


def finding_of_rows(stage: str, table: pa.Table) -> Any:
    """The inverse of `finding_columns`, from one group's rows; None where the stage did not run."""
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


_OF_DRAFTS = {b"axis": b"draft"}


def of_drafts(finding: pa.RecordBatch) -> pa.RecordBatch:
    """A finding whose rows are those of the group's drafts, marked as such."""
    return finding.replace_schema_metadata(_OF_DRAFTS)


def extra_columns(groups: Sequence[Group], drafts: bool = False) -> dict[str, pa.Array]:
    """The columns `stage/column` of whole groups, for the stages that have none of their own; of their `drafts`
    instead of their attempts."""
    names = sorted({name for group in groups for name in group.findings} - ON_DISK.keys())
    sizes = [len(group.drafts) if drafts else group.size for group in groups]
    found: dict[str, pa.Array] = {}
    for name in names:
        findings = [group.findings.get(name) for group in groups]
        own = [
            finding if _is_of_drafts(finding, group) == drafts else None
            for finding, group in zip(findings, groups, strict=True)
        ]
        if all(finding is None for finding in own):
            continue
        table = _stacked(own, sizes)
        found |= {f"{name}/{column}": table.column(column).combine_chunks() for column in table.column_names}
    return found


def extra_findings(table: pa.Table) -> Iterator[tuple[str, Any]]:
    """The inverse of `extra_columns`, from one group's rows: stage and finding."""
    for name in [each.removesuffix(f"/{_STATE}") for each in table.column_names if each.endswith(f"/{_STATE}")]:
        own = [each for each in table.column_names if each.startswith(f"{name}/")]
        finding = finding_of_rows(
            name, table.select(own).rename_columns([each.removeprefix(f"{name}/") for each in own])
        )
        if finding is not None:
            yield name, finding


def _is_of_drafts(finding: Any, group: Group) -> bool:
    """An unknown finding has no rows: it is on the attempts, where there are any."""
    if isinstance(finding, pa.RecordBatch):
        return bool(finding.schema.metadata == _OF_DRAFTS)
    return not group.size


def _stacked(findings: Sequence[Any], sizes: Sequence[int]) -> pa.Table:
    return pa.concat_tables(map(_rows, findings, sizes), promote_options="default")


def _rows(finding: Any, size: int) -> pa.Table:
    state: str | None
    columns: dict[str, pa.Array] = {}
    if isinstance(finding, pa.RecordBatch):
        if finding.num_rows != size:
            raise ValueError(f"a group of {size} rollouts needs a finding of {size} rows, got {finding.num_rows}")
        state, columns = _KNOWN, dict(zip(finding.schema.names, finding.columns, strict=True))
    elif isinstance(finding, Skipped):
        state = f"{_SKIPPED}{finding.reason}"
    elif finding is None or finding is UNKNOWN:
        state = None if finding is None else _UNKNOWN
    else:
        raise TypeError(f"a finding is stored as a pyarrow.RecordBatch, got {type(finding).__name__}")
    return pa.table({_STATE: pa.array([state] * size, pa.string()), **columns})
