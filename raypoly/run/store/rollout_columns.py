"""Rollouts, drafts and the findings of stages as Arrow columns, one row a rollout; token arrays are lists of numbers.

Every value comes back with the same bits. Text that UTF-8 can't hold (lone surrogates in a program's message) is
kept with backslash escapes in its place. A draft has the columns of a rollout, `role`, and `parent` (null: it was made
from no draft).

Findings of `score`, `judge` and `prompt_logprobs` have columns of their own. A finding of any other stage is a
`pyarrow.RecordBatch` of N rows. Beside the columns of a stage there is a column `state`:

    state       "known", "unknown", "skipped: why"; null where the stage did not run
    ...         the columns of the finding, null where `state` is not "known"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raypoly.core.text import as_utf8
from raypoly.core.values import (
    ATTEMPT,
    UNKNOWN,
    CrossLogprobs,
    Draft,
    Evidence,
    Failure,
    Float32,
    Group,
    Int32,
    Labels,
    Rollout,
    Skipped,
    Turn,
    Verdict,
)

TOKENS = pa.list_(pa.float32())
"""The type of a column with a number for each token of a response."""
_TOKEN_ADVANTAGES = "token_advantages"
_TURNS = pa.list_(
    pa.struct(
        {
            "role": pa.string(),
            "start": pa.int32(),
            "text": pa.string(),
            "finish_reason": pa.string(),
            "seconds": pa.float64(),
        }
    )
)
_NEWER = "newer_from"
DRAFT_OF = "draft_of"
"""The column of attempts that names their draft; null for none."""


def rollout_columns(rollouts: Sequence[Rollout]) -> dict[str, pa.Array]:
    return {
        "prompt_tokens": lists_of([rollout.prompt_tokens for rollout in rollouts], np.dtype(np.int32)),
        "tokens": lists_of([rollout.tokens for rollout in rollouts], np.dtype(np.int32)),
        "logprobs": lists_of([rollout.logprobs for rollout in rollouts], np.dtype(np.float32)),
        "text": _strings([rollout.text for rollout in rollouts]),
        "finish_reason": pa.array([rollout.finish_reason for rollout in rollouts], pa.string()),
        "seed": pa.array([rollout.seed for rollout in rollouts], pa.uint64()),
        "weight_version": pa.array([rollout.weight_version for rollout in rollouts], pa.int32()),
        **_turn_columns(rollouts),
        **_newer_column(rollouts),
    }


def rollouts_of(table: pa.Table) -> tuple[Rollout, ...]:
    rollouts = _of_one_version(table)
    if _NEWER not in table.column_names:
        return rollouts
    newer = table.column(_NEWER).to_pylist()
    return tuple(replace(rollout, newer_from=at) for rollout, at in zip(rollouts, newer, strict=True))


def _of_one_version(table: pa.Table) -> tuple[Rollout, ...]:
    columns = (
        arrays_of(table.column("prompt_tokens")),
        arrays_of(table.column("tokens")),
        arrays_of(table.column("logprobs")),
        *(table.column(name).to_pylist() for name in ("text", "finish_reason", "seed", "weight_version")),
    )
    if "turns" not in table.column_names:
        return tuple(Rollout(*row) for row in zip(*columns, strict=True))
    outcomes, turns = (table.column(name).to_pylist() for name in ("outcome", "turns"))
    own = zip(arrays_of(table.column("own").cast(pa.list_(pa.int8()))), turns, outcomes, strict=True)
    return tuple(
        Rollout(*row, *((mask.astype(np.bool_), tuple(Turn(**turn) for turn in each), outcome) if each else ()))
        for row, (mask, each, outcome) in zip(zip(*columns, strict=True), own, strict=True)
    )


def _newer_column(rollouts: Sequence[Rollout]) -> dict[str, pa.Array]:
    """No column where weights changed in no rollout."""
    found = [rollout.newer_from for rollout in rollouts]
    return {_NEWER: pa.array(found, pa.int32())} if any(at is not None for at in found) else {}


def _turn_columns(rollouts: Sequence[Rollout]) -> dict[str, pa.Array]:
    """Of conversations; no columns where there are none."""
    if not any(rollout.turns for rollout in rollouts):
        return {}
    masks = [np.ones(len(it.tokens), np.int8) if it.mask is None else it.mask.astype(np.int8) for it in rollouts]
    turns = [[asdict(turn) | {"text": as_utf8(turn.text)} for turn in rollout.turns] for rollout in rollouts]
    return {
        "own": lists_of(masks, np.dtype(np.int8)).cast(pa.list_(pa.bool_())),
        "turns": pa.array(turns, _TURNS),
        "outcome": pa.array([rollout.outcome for rollout in rollouts], pa.float64()),
    }


def verdict_columns(verdicts: Sequence[Verdict]) -> dict[str, pa.Array]:
    """Verdicts with their evidence; `canonical` .. `features` are null where there is none."""
    found = [verdict.evidence for verdict in verdicts]
    constructs = [None if e is None else [as_utf8(c) for c in e.constructs] for e in found]
    features = [None if e is None else list(e.features) for e in found]
    return {
        "status": pa.array([verdict.status for verdict in verdicts], pa.string()),
        "tests_passed": pa.array([verdict.tests_passed for verdict in verdicts], pa.int32()),
        "tests_total": pa.array([verdict.tests_total for verdict in verdicts], pa.int32()),
        "cpu_seconds": pa.array([verdict.cpu_seconds for verdict in verdicts], pa.float64()),
        "detail": _strings([verdict.detail for verdict in verdicts]),
        "canonical": _strings([None if e is None else e.canonical for e in found]),
        "constructs": pa.array(constructs, pa.list_(pa.string())),
        "growth": _strings([None if e is None else json.dumps(dict(e.growth)) for e in found]),
        "strategy": _strings([None if e is None else e.strategy for e in found]),
        "features": pa.array(features, pa.list_(pa.string())),
        "failure": _strings([None if v.failure is None else json.dumps(astuple(v.failure)) for v in verdicts]),
        "repeatable": pa.array([verdict.repeatable for verdict in verdicts], pa.bool_()),
    }


def known_verdict_columns(verdicts: Sequence[Verdict | None]) -> dict[str, pa.Array]:
    """`verdict_columns`, null where there is no verdict."""
    known = verdict_columns([verdict for verdict in verdicts if verdict is not None])
    if None not in verdicts:
        return known
    # Verdicts are encoded without gaps, then spread: `take` gives null where the place is null.
    scored = [verdict is not None for verdict in verdicts]
    place = pa.array(np.cumsum(scored) - 1, pa.int64(), mask=np.logical_not(scored))
    return {name: column.take(place) for name, column in known.items()}


def verdicts_of(table: pa.Table) -> tuple[Verdict, ...]:
    found = (table.column(name).to_pylist() for name in ("canonical", "constructs", "growth", "strategy", "features"))
    evidence = map(_evidence, *found)
    names = ("status", "tests_passed", "tests_total", "cpu_seconds", "detail")
    columns = (table.column(name).to_pylist() for name in names)
    failures = (None if text is None else Failure(*json.loads(text)) for text in table.column("failure").to_pylist())
    repeatable = table.column("repeatable").to_pylist()
    return tuple(Verdict(*row) for row in zip(*columns, evidence, failures, repeatable, strict=True))


def _evidence(
    canonical: str | None, constructs: list[str], growth: str, strategy: str, features: list[str]
) -> Evidence | None:
    if canonical is None:
        return None
    return Evidence(canonical, tuple(constructs), json.loads(growth), strategy, tuple(features))


def labels_columns(labels: Labels) -> dict[str, pa.Array]:
    return {
        "label": pa.array(labels.ids, pa.int32()),
        "degenerate": pa.array(labels.degenerate, pa.bool_()),
        "judge": _strings([labels.judge] * len(labels.ids)),
    }


def labels_of(table: pa.Table) -> Labels | None:
    """The labels of one group's rows; None where they are null."""
    judge = table.column("judge")[0].as_py()
    if judge is None:
        return None
    ids = np.array(table.column("label").to_pylist(), np.int32)
    return Labels(ids, np.array(table.column("degenerate").to_pylist(), np.bool_), judge)


def cross_columns(cross: CrossLogprobs) -> dict[str, pa.Array]:
    """A prompt's number, and [P, T] as one list, row by row."""
    rows = [np.ravel(each) for each in cross.logprobs]
    return {
        "own_prompt": pa.array(cross.own_prompt, pa.int32()),
        "cross_logprobs": lists_of(rows, np.dtype(np.float32)),
    }


def cross_of(table: pa.Table) -> CrossLogprobs | None:
    """The log-probabilities of one group's rows; None if they are null or have no columns."""
    if "own_prompt" not in table.column_names or table.column("own_prompt")[0].as_py() is None:
        return None
    own = table.column("own_prompt").to_numpy().astype(np.int32)
    rows = arrays_of(table.column("cross_logprobs"))
    return CrossLogprobs(own, tuple(row.reshape(int(own.max()) + 1, -1) for row in rows))


def draft_columns(drafts: Sequence[Draft]) -> dict[str, pa.Array]:
    return {
        **rollout_columns([draft.rollout for draft in drafts]),
        "role": _strings([draft.role for draft in drafts]),
        "parent": pa.array([draft.parent for draft in drafts], pa.int32()),
    }


def drafts_of(table: pa.Table) -> tuple[Draft, ...]:
    columns = (table.column("role").to_pylist(), table.column("parent").to_pylist())
    return tuple(Draft(*row) for row in zip(rollouts_of(table), *columns, strict=True))


def draft_of_column(groups: Sequence[Group]) -> dict[str, pa.Array]:
    """`draft_of` of all groups' attempts; no column where no group has drafts."""
    if not any(group.drafts for group in groups):
        return {}
    found = np.concatenate([group.draft_of for group in groups])
    return {DRAFT_OF: pa.array(found, pa.int32(), mask=found < 0)}


def draft_of_rows(table: pa.Table) -> Int32:
    if DRAFT_OF not in table.column_names:
        return np.full(table.num_rows, -1, np.int32)
    found: Int32 = pc.fill_null(table.column(DRAFT_OF), -1).to_numpy().astype(np.int32)
    return found


def token_columns(advantages: Sequence[Mapping[int, Float32]], sizes: Sequence[int]) -> dict[str, pa.Array]:
    """One advantage a token of the attempts that have those, null for the others; no column where none has."""
    if not any(advantages):
        return {}
    rows = [own.get(place) for own, size in zip(advantages, sizes, strict=True) for place in range(size)]
    nothing = np.zeros(0, np.float32)
    lists = lists_of([nothing if row is None else row for row in rows], np.dtype(np.float32))
    # `take` gives null where the place is null
    places = pa.array(np.arange(len(rows)), pa.int64(), mask=np.array([row is None for row in rows], bool))
    return {_TOKEN_ADVANTAGES: lists.take(places)}


def tokens_of(table: pa.Table) -> Mapping[int, Float32]:
    """The inverse of `token_columns`, of one group's attempts."""
    if _TOKEN_ADVANTAGES not in table.column_names:
        return {}
    column = table.column(_TOKEN_ADVANTAGES)
    known = np.flatnonzero(pc.is_valid(column).to_numpy()).tolist()
    return dict(zip(known, arrays_of(column.drop_null()), strict=True)) if known else {}


def attempts_alone(table: pa.Table) -> pa.Table:
    """The rows of a step's table that are attempts, without the columns of drafts."""
    if "role" not in table.column_names:
        return table
    return table.filter(_is_attempt(table)).drop_columns(["role", "parent"])


def drafts_alone(table: pa.Table) -> pa.Table:
    """The rows of a step's table that are drafts."""
    if "role" not in table.column_names:
        return table.slice(0, 0)
    return table.filter(pc.invert(_is_attempt(table)))


def _is_attempt(table: pa.Table) -> pa.ChunkedArray:
    # Bundles have null roles for steps without drafts.
    return pc.equal(pc.fill_null(table.column("role"), ATTEMPT), ATTEMPT)


OWN_COLUMNS: Mapping[str, tuple[Callable[[Any], dict[str, pa.Array]], Callable[[pa.Table], Any]]] = {
    "score": (verdict_columns, verdicts_of),
    "judge": (labels_columns, labels_of),
    "prompt_logprobs": (cross_columns, cross_of),
}
"""The stages whose findings are no `RecordBatch`: how one is written, and read back."""
_STATE, _KNOWN, _UNKNOWN, _SKIPPED = "state", "known", "unknown", "skipped: "
_OF_DRAFTS = {b"axis": b"draft"}


def finding_rows(stage: str, finding: Any, size: int | None = None) -> pa.Table:
    """`state` and the columns of one group's finding. None stands for a stage that did not run.

    There are `size` rows; without a `size` as many as the finding has, and one where nothing is known.
    """
    columns: dict[str, pa.Array] = {}
    state: str | None = _KNOWN
    if finding is None or finding is UNKNOWN:
        state = None if finding is None else _UNKNOWN
    elif isinstance(finding, Skipped):
        state = f"{_SKIPPED}{finding.reason}"
    elif stage in OWN_COLUMNS:
        columns = OWN_COLUMNS[stage][0](finding)
    elif isinstance(finding, pa.RecordBatch):
        if size not in (None, finding.num_rows):
            raise ValueError(f"a group of {size} rollouts needs a finding of {size} rows, got {finding.num_rows}")
        columns, size = dict(zip(finding.schema.names, finding.columns, strict=True)), finding.num_rows
    else:
        raise TypeError(f"a finding is stored as a pyarrow.RecordBatch, got {type(finding).__name__}")
    size = len(next(iter(columns.values()), [None])) if size is None else size
    return pa.table({_STATE: pa.array([state] * size, pa.string()), **columns})


def finding_of_rows(stage: str, table: pa.Table) -> Any:
    """The inverse of `finding_rows`."""
    state = table.column(_STATE)[0].as_py()
    if state is None or state == _UNKNOWN:
        return UNKNOWN if state else None
    if state.startswith(_SKIPPED):
        return Skipped(state.removeprefix(_SKIPPED))
    table = table.drop_columns([_STATE])
    return OWN_COLUMNS[stage][1](table) if stage in OWN_COLUMNS else table.combine_chunks().to_batches()[0]


def stacked(tables: Sequence[pa.Table]) -> dict[str, pa.Array]:
    """The columns of tables, one below the other; null where a table lacks one."""
    whole = pa.concat_tables(tables, promote_options="default")
    return {name: whole.column(name).combine_chunks() for name in whole.column_names}


def of_drafts(finding: pa.RecordBatch) -> pa.RecordBatch:
    """A finding whose rows are those of the group's drafts, marked as such."""
    return finding.replace_schema_metadata(_OF_DRAFTS)


def extra_columns(groups: Sequence[Group], drafts: bool = False) -> dict[str, pa.Array]:
    """The columns `stage/column` of whole groups, for the stages that have none of their own; of their `drafts`
    instead of their attempts."""
    found: dict[str, pa.Array] = {}
    for name in sorted({name for group in groups for name in group.findings} - OWN_COLUMNS.keys()):
        own = [
            group.findings.get(name) if _is_of_drafts(group.findings.get(name), group) == drafts else None
            for group in groups
        ]
        if any(finding is not None for finding in own):
            sizes = [len(group.drafts) if drafts else group.size for group in groups]
            columns = stacked([finding_rows(name, *each) for each in zip(own, sizes, strict=True)])
            found |= {f"{name}/{column}": columns[column] for column in sorted(columns)}
    return found


def extra_findings(table: pa.Table) -> Iterator[tuple[str, Any]]:
    """The inverse of `extra_columns`, from one group's rows: stage and finding."""
    for name in [each.removesuffix(f"/{_STATE}") for each in table.column_names if each.endswith(f"/{_STATE}")]:
        own = [each for each in table.column_names if each.startswith(f"{name}/")]
        rows = table.select(own).rename_columns([each.removeprefix(f"{name}/") for each in own])
        finding = finding_of_rows(name, rows)
        if finding is not None:
            yield name, finding


def _is_of_drafts(finding: Any, group: Group) -> bool:
    # An unknown finding has no rows: it is on the attempts, where there are any.
    if isinstance(finding, pa.RecordBatch):
        return bool(finding.schema.metadata == _OF_DRAFTS)
    return not group.size


def lists_of(rows: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> pa.Array:
    """A list column of these arrays."""
    # No Python number is made on the way.
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    values = np.concatenate(rows).astype(dtype, copy=False, casting="same_kind") if rows else np.zeros(0, dtype)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def arrays_of(column: pa.ChunkedArray) -> list[NDArray[Any]]:
    """The rows of a list column, as views on one array that nobody may write to."""
    whole = column.combine_chunks()
    parts = whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]
    rows: list[NDArray[Any]] = []
    for part in parts:
        # `values` is the whole buffer, also of a slice of the table: its offsets point to the right places in it.
        offsets = part.offsets.to_numpy()
        values = part.values.to_numpy()
        rows.extend(values[start:end] for start, end in pairwise(offsets))
    return rows


def _strings(texts: Sequence[str | None]) -> pa.Array:
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        return pa.array([None if text is None else as_utf8(text) for text in texts], pa.string())
