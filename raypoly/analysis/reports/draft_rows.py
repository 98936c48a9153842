"""What a page shows of rollouts in steps with drafts: which draft each was made from, and what it cost.

facts = draft_facts(run.stored(12))     # empty where the step has no drafts
ancestors(facts)[5]                     # the rows of the drafts that row 5 was made from
families(facts)[5]                      # these, and the attempts beside it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from raypoly.core.values import ATTEMPT
from raypoly.run.store.rollout_columns import DRAFT_OF

_NEEDED = ("slot", "rollout", "role", "parent", "seed", "finish_reason")


def draft_facts(table: pa.Table) -> list[dict[str, Any]]:
    """Of each row of a step with drafts: `role, slot, place, parent, tokens, cut, made`; none for any other step.

    `place` is the number among the group's drafts, or among its attempts; `parent` the number of the draft that it was
    made from, or None. `cut` and `made` are words.
    """
    roles = [role or ATTEMPT for role in table.column("role").to_pylist()] if "role" in table.column_names else []
    if all(role == ATTEMPT for role in roles):
        return []
    columns = {name: table.column(name).to_pylist() for name in _NEEDED} | {"role": roles}
    columns["tokens"] = pc.list_value_length(table.column("tokens")).to_pylist()
    columns[DRAFT_OF] = table.column(DRAFT_OF).to_pylist()
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    seeds = {(row["slot"], row["rollout"]): row["seed"] for row in rows if row["role"] != ATTEMPT}
    return [_facts(row, seeds) for row in rows]


def _facts(row: Mapping[str, Any], seeds: Mapping[tuple[int, int], int]) -> dict[str, Any]:
    attempt = row["role"] == ATTEMPT
    parent = row[DRAFT_OF] if attempt else row["parent"]
    same = attempt and parent is not None and seeds[row["slot"], parent] == row["seed"]
    return {
        "role": row["role"],
        "slot": row["slot"],
        "place": row["rollout"],
        "parent": parent,
        "tokens": row["tokens"],
        "cut": "cut by its limit" if row["finish_reason"] == "length" else "",
        "made": "" if parent is None else f"is draft {parent}" if same else f"from draft {parent}",
    }


def ancestors(facts: Sequence[Mapping[str, Any]]) -> list[tuple[int, ...]]:
    """The rows of the drafts that each row was made from, the nearest first. A draft is made from earlier ones."""
    at = {(fact["slot"], fact["place"]): row for row, fact in enumerate(facts) if fact["role"] != ATTEMPT}
    found: list[tuple[int, ...]] = []
    for fact in facts:
        above: list[int] = []
        while fact["parent"] is not None:
            above.append(at[fact["slot"], fact["parent"]])
            fact = facts[above[-1]]
        found.append(tuple(above))
    return found


def families(facts: Sequence[Mapping[str, Any]]) -> list[tuple[int, ...]]:
    """The rows that each row is shown with where there is room: its `ancestors`, and the attempts that were made from
    the same draft as it, or from it."""
    drafts = [fact["parent"] if fact["role"] == ATTEMPT else fact["place"] for fact in facts]
    behind: dict[tuple[int, int], list[int]] = {}
    for row, fact in enumerate(facts):
        if fact["role"] == ATTEMPT and fact["parent"] is not None:
            behind.setdefault((fact["slot"], fact["parent"]), []).append(row)
    return [
        (*above, *behind.get((fact["slot"], draft), ()))
        for fact, draft, above in zip(facts, drafts, ancestors(facts), strict=True)
    ]
