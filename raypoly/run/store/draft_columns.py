"""Drafts as Arrow columns, one row a draft: those of rollouts and verdicts, with

role, parent       null parent: it was made from no draft
status ...         null where nobody asked for its verdict
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raypoly.core.values import ATTEMPT, Draft, Group, Int32
from raypoly.run.store.rollout_columns import rollout_columns, rollouts_of, strings, verdict_columns, verdicts_of

DRAFT_OF = "draft_of"
"""The column of attempts that names their draft; null for none."""


def draft_columns(drafts: Sequence[Draft]) -> dict[str, pa.Array]:
    """The columns of drafts."""
    scored = [draft.verdict is not None for draft in drafts]
    verdicts = verdict_columns([draft.verdict for draft in drafts if draft.verdict is not None])
    place = pa.array(np.cumsum(scored) - 1, pa.int64(), mask=np.logical_not(scored))
    return {
        **rollout_columns([draft.rollout for draft in drafts]),
        **{name: column.take(place) for name, column in verdicts.items()},
        "role": strings([draft.role for draft in drafts]),
        "parent": pa.array([draft.parent for draft in drafts], pa.int32()),
    }


def drafts_of(table: pa.Table) -> tuple[Draft, ...]:
    """The inverse of `draft_columns`."""
    scored = pc.is_valid(table.column("status"))
    verdicts = iter(verdicts_of(table.filter(scored)))
    columns = (scored.to_pylist(), table.column("role").to_pylist(), table.column("parent").to_pylist())
    rows = zip(rollouts_of(table), *columns, strict=True)
    return tuple(
        Draft(rollout, role, parent, next(verdicts) if known else None) for rollout, known, role, parent in rows
    )


def draft_of_column(groups: Sequence[Group]) -> dict[str, pa.Array]:
    """The column `draft_of` of all groups' attempts; none where no group has drafts."""
    if not any(group.drafts for group in groups):
        return {}
    found = np.concatenate([group.draft_of for group in groups])
    return {DRAFT_OF: pa.array(found, pa.int32(), mask=found < 0)}


def draft_of_rows(table: pa.Table) -> Int32:
    """The inverse of `draft_of_column`, from one group's attempts."""
    if DRAFT_OF not in table.column_names:
        return np.full(table.num_rows, -1, np.int32)
    found: Int32 = pc.fill_null(table.column(DRAFT_OF), -1).to_numpy().astype(np.int32)
    return found


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
    """Bundles have null roles for steps without drafts."""
    return pc.equal(pc.fill_null(table.column("role"), ATTEMPT), ATTEMPT)
