"""What a page shows of plans and their branches: J, p, the scaffold's remark; methods, and if they were followed.

facts = plan_facts(run.stored(12), PlanReader.of(run.config))
facts[0]["gate"], facts[5]["method"]        # "accepted", "A: fold over squares"
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from string import ascii_uppercase
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from raypoly.core.config import Config
from raypoly.core.values import Draft
from raypoly.rollouts import scaffolds
from raypoly.run.store.rollout_columns import DRAFT_OF, drafts_alone, drafts_of
from raypoly.strategies.planned_strategy import is_followed

ACCEPTED = "gate/accepted"
"""The column of J."""
_NEEDED = ("slot", "role", "status", "strategy", "reward", DRAFT_OF, ACCEPTED, "gate/p", "gate/state")
_ANSWERS = {True: "accepted", False: "refused", None: "unknown"}
_FOLLOWED = {True: "yes", False: "no", None: "unknown"}
_NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(("gate", "contract", "solved", "method", "followed"), ""),
    **dict.fromkeys(("p", "reward")),
}
PLAN_FACTS = tuple(_NOTHING)
_NO_METHOD = "its plan has no method here"


@dataclass(frozen=True)
class PlanReader:
    """Reads drafts as the run's scaffold does."""

    scaffold: scaffolds.Scaffold
    attempts: int
    """N, those of a group."""

    @classmethod
    def of(cls, config: Config) -> PlanReader:
        """Raises `UsageError` where the scaffold can't be built: a file of the user's may be gone."""
        return cls(scaffolds.of_run(config), config.train.rollouts)

    def methods(self, drafts: Sequence[Draft], attempts: int) -> Sequence[str | None] | None:
        """Of each attempt of a group; None where the scaffold tells attempts no methods."""
        found = self.scaffold.methods(drafts, self.attempts)
        return found if found is not None and len(found) == attempts else None


def plan_facts(table: pa.Table, reader: PlanReader | None) -> list[dict[str, Any]]:
    """Of each row of a step with drafts, `PLAN_FACTS`: words, empty where there is nothing to say, and numbers or None.

    Of drafts: `gate` (J) and `p`, `contract` (what the scaffold remarks), `solved` (how many attempts behind it
    passed). Of attempts: `reward`, the `method` that they were told, behind its letter, and whether it was `followed`.
    Without a reader nothing is known of contracts and methods.
    """
    size, names = table.num_rows, table.column_names
    columns = [table.column(name).to_pylist() if name in names else [None] * size for name in _NEEDED]
    rows = [dict(zip(_NEEDED, row, strict=True)) for row in zip(*columns, strict=True)]
    drafts = drafts_alone(table)
    found: list[dict[str, Any]] = []
    for slot, group in groupby(rows, key=lambda row: row["slot"]):
        own = drafts_of(drafts.filter(pc.equal(drafts.column("slot"), slot)))
        found += _group_facts(own, list(group), reader, asked="gate/state" in names)
    return found


def _group_facts(
    drafts: Sequence[Draft], rows: Sequence[Mapping[str, Any]], reader: PlanReader | None, asked: bool
) -> list[dict[str, Any]]:
    attempts = rows[len(drafts) :]
    behind: dict[int | None, list[int]] = defaultdict(list)
    for place, row in enumerate(attempts):
        behind[row[DRAFT_OF]].append(place)
    methods = reader.methods(drafts, len(attempts)) if reader and drafts else None
    letters: dict[int, str] = {}
    found = []
    for number, (draft, row) in enumerate(zip(drafts, rows, strict=False)):
        own = behind[number]
        contract = reader.scaffold.remark(draft) if reader else ""
        if methods is not None:
            letters |= dict(zip(own, ascii_uppercase, strict=False))
        found.append(_of_draft(row, [attempts[place] for place in own], contract, asked))
    told = methods or [None] * len(attempts)
    return [*found, *(_of_attempt(row, told[at], letters.get(at)) for at, row in enumerate(attempts))]


def _of_draft(
    row: Mapping[str, Any], behind: Sequence[Mapping[str, Any]], contract: str, asked: bool
) -> dict[str, Any]:
    passed = sum(attempt["status"] == "passed" for attempt in behind)
    return {
        **_NOTHING,
        "gate": _ANSWERS[row[ACCEPTED]] if asked else "",
        "p": row["gate/p"],
        "contract": contract,
        "solved": f"{passed} of {len(behind)} attempts passed" if behind else "",
    }


def _of_attempt(row: Mapping[str, Any], method: str | None, letter: str | None) -> dict[str, Any]:
    """`letter`: that of the line of its plan from which its method was read, or which is not there."""
    shown = method or (_NO_METHOD if letter else "")
    return {
        **_NOTHING,
        "method": f"{letter}: {shown}" if letter else shown,
        "followed": _FOLLOWED[is_followed(method, row["strategy"])] if method else "",
        "reward": row["reward"],
    }
