"""Chooses among the usable rows of a source: those that meet `where`, and `take` of them by seed.

choice = RowChoice("leetcode", config.sources["leetcode"])
matching = [it for it, row in usable if choice.matches(it.id, it.facts, row.match)]
chosen = choice.draw(matching)
choice.left_out                     # a decision with a reason for each other one
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.data.preparing.candidates import Candidate, SourceFacts
from raypoly.data.preparing.decision_log import Decision
from raypoly.data.preparing.prepare_config import SourceConfig
from raypoly.data.preparing.row_conditions import RowMatch


class RowChoice:
    def __init__(self, name: str, source: SourceConfig) -> None:
        self._name, self._source = name, source
        self.left_out: list[Decision] = []
        self._absent: set[str] | None = None  # fields of `where` that every row so far lacks
        self._present: set[str] = set()

    def matches(self, problem_id: str, facts: SourceFacts, match: RowMatch) -> bool:
        """Whether a usable row meets `where`; else it is left out."""
        self._absent = set(match.absent) if self._absent is None else self._absent & set(match.absent)
        self._present.update(match.present)
        if match.unmet:
            self._leave_out(problem_id, facts, match.unmet)
        return not match.unmet

    def draw(self, matching: Sequence[Candidate]) -> list[Candidate]:
        """`take` of those that meet `where`, in their order; a larger `take` adds to a smaller one.

        Raises `UsageError` if there are fewer, or none, or if no row had a field of `where`.
        """
        if self._absent:
            raise UsageError(
                f"where of {self._name} names the field {min(self._absent)!r}, which none of its usable rows has; they "
                f"have {', '.join(sorted(self._present))}."
            )
        if not matching:
            one = self.left_out[0]
            raise UsageError(f"No problem of {self._name} meets its where; of {one.problem_id}, for one: {one.reason}.")
        take = self._source.take
        if take is None:
            return list(matching)
        if take > len(matching):
            raise UsageError(f"take={take} of {self._name} is more than its {len(matching)} problems: lower it.")
        order = sorted(it.id for it in matching)
        random.Random(derive(self._source.seed or 0, "prepare take", self._name)).shuffle(order)
        drawn = set(order[:take])
        for it in matching:
            if it.id not in drawn:
                self._leave_out(it.id, it.facts, f"it is not among the {take} that take drew")
        return [it for it in matching if it.id in drawn]

    def _leave_out(self, problem_id: str, facts: SourceFacts, reason: str) -> None:
        self.left_out.append(Decision(problem_id, "choose", reason, {"source": facts.source, "row": facts.row}))
