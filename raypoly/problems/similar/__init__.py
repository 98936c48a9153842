"""Problems that are the same although their rows differ: copies within a data set, and overlap with an evaluation set.

    for pair in find_duplicates(problems):             # raypoly score --problems P.jsonl --duplicates
        print(pair.dropped.id, pair.kept.id, pair.reason, pair.similarity)
    contaminated = {pair.dropped.id for pair in find_overlaps(training, evaluation)}

What counts as the same, and how well it is found, is in docs/data.md. The result is a function of the problems alone:
neither their order nor chance plays a part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from raypoly.problems.similar.duplicate_pairs import (
    THRESHOLD,
    ComparedProblem,
    Likeness,
    Reason,
    likeness_of,
    prepare_problem,
)
from raypoly.problems.similar.ngrams import GramHasher, similar_pairs
from raypoly.values import Problem

__all__ = ["DuplicatePair", "Reason", "find_duplicates", "find_overlaps"]


@dataclass(frozen=True)
class DuplicatePair:
    """Two rows of one problem, each without its tests: they may be large, and nothing here compares them."""

    dropped: Problem
    """The one to leave out: of an overlap, the one of the training set."""
    kept: Problem
    reason: Reason
    similarity: float | None
    """0 to 1; None where a statement is missing, and the names alone are the same."""


def find_duplicates(problems: Iterable[Problem]) -> list[DuplicatePair]:
    """A pair for each problem that is not needed beside another, with the most similar of those that are kept; by id.

    Kept is the one with a known solution, then with more tests, then with the longer prompt, then with the smaller id.
    Problems are gone through in that order, and one is dropped if it is the same as one that is kept: so what is
    dropped always has its like among what remains, and likeness is not passed on from pair to pair.
    """
    everything = sorted(_compare_all(problems), key=lambda it: it.preference)
    partners = _Partners(everything, everything)
    kept: dict[str, list[ComparedProblem]] = defaultdict(list)
    pairs = []
    for it in everything:
        found = _most_similar(it, (other for place in partners.of(it) for other in kept[place]))
        if found is None:
            for place in partners.places(it):
                kept[place].append(it)
        else:
            pairs.append(found)
    return sorted(pairs, key=lambda pair: (pair.dropped.id, pair.kept.id))


def find_overlaps(training: Iterable[Problem], evaluation: Iterable[Problem]) -> list[DuplicatePair]:
    """A pair for each training problem that the evaluation has too, with the most similar of the evaluation; by id."""
    hasher = GramHasher()
    ours = sorted(_compare_all(training, hasher), key=lambda it: it.preference)
    theirs = sorted(_compare_all(evaluation, hasher), key=lambda it: it.preference)
    partners = _Partners(ours, theirs)
    there: dict[str, list[ComparedProblem]] = defaultdict(list)
    for it in theirs:
        for place in partners.places(it):
            there[place].append(it)
    pairs = [_most_similar(it, (other for place in partners.of(it) for other in there[place])) for it in ours]
    return sorted((pair for pair in pairs if pair), key=lambda pair: (pair.dropped.id, pair.kept.id))


class _Partners:
    """Where to look for the like of a problem: under its names, its statement, and statements near to it."""

    def __init__(self, ours: Sequence[ComparedProblem], theirs: Sequence[ComparedProblem]) -> None:
        left, right = ({it.digest: it.grams for it in side if it.digest} for side in (ours, theirs))
        self._near: Mapping[str, list[str]] = defaultdict(list)
        our_digests, their_digests = list(left), list(right)
        for i, j in similar_pairs(list(left.values()), list(right.values()), THRESHOLD):
            self._near[our_digests[i]].append(their_digests[j])

    def places(self, it: ComparedProblem) -> list[str]:
        """Under which it is found."""
        return [*sorted(f"name {slug}" for slug in it.names.slugs), *([it.digest] if it.digest else [])]

    def of(self, it: ComparedProblem) -> list[str]:
        """Where its like may be."""
        names = sorted(f"name {slug}" for slug in it.names.slugs)
        return [*names, *(self._near.get(it.digest, []) if it.digest else [])]


def _compare_all(problems: Iterable[Problem], hasher: GramHasher | None = None) -> Iterator[ComparedProblem]:
    hasher = hasher or GramHasher()
    return (prepare_problem(problem, hasher) for problem in problems)


def _most_similar(it: ComparedProblem, others: Iterable[ComparedProblem]) -> DuplicatePair | None:
    """Of those that are the same problem; the first in order of preference among equals."""
    best: tuple[float, ComparedProblem, Likeness] | None = None
    for other in others:
        likeness = likeness_of(it, other)
        if likeness is not None:
            rank = -1.0 if likeness.similarity is None else likeness.similarity
            if best is None or (-rank, other.preference) < (-best[0], best[1].preference):
                best = rank, other, likeness
    return None if best is None else DuplicatePair(it.problem, best[1].problem, best[2].reason, best[2].similarity)
