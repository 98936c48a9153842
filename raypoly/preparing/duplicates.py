"""Problems that are there twice, or in an evaluation set as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from raypoly.preparing.candidates import Candidate
from raypoly.preparing.decision_log import Decision
from raypoly.problems.similar import DuplicatePair, find_duplicates, find_overlaps


def same(candidates: Sequence[Candidate], evaluation: Iterable[Candidate]) -> list[Decision]:
    """A decision for each problem that is dropped: for its like in the evaluation, else for one that stays."""
    leaked = find_overlaps((it.problem for it in candidates), (it.problem for it in evaluation))
    names = {pair.dropped.id for pair in leaked}
    twice = find_duplicates(it.problem for it in candidates if it.id not in names)
    return [
        *(_decision(pair, f"is in {pair.kept.source} as well") for pair in leaked),
        *(_decision(pair, "is there a second time") for pair in twice),
    ]


def _decision(pair: DuplicatePair, what: str) -> Decision:
    similarity = None if pair.similarity is None else round(pair.similarity, 4)
    facts = {"same_as": pair.kept.id, "source": pair.kept.source, "because": pair.reason, "similarity": similarity}
    return Decision(pair.dropped.id, "same", f"{what}: {pair.kept.id} ({pair.reason})", facts)
