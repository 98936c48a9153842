"""Duplicate problems: copies within a data set, and overlap with an evaluation set.

    for pair in find_duplicates(problems):             # raypoly score --problems P.jsonl --duplicates
        print(pair.dropped.id, pair.kept.id, pair.reason, pair.similarity)
    contaminated = {pair.dropped.id for pair in find_overlaps(training, evaluation)}

docs/data.md says what counts as the same. Neither order nor chance plays a part.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from raypoly.core.values import Problem, TestSuite
from raypoly.data.similar.ngrams import GramHasher, UInt64, jaccard, similar_pairs
from raypoly.data.similar.statement_words import StatementWords, words_of_prompt

# Similarity from which two statements are one, if nothing speaks against it. Of the 1890 problems of LeetCodeDataset
# v0.2, the most similar that differ and that only their names tell apart have 0.81.
_THRESHOLD = 0.82
_WITH_NAME = 0.3  # the same, where both have the same name as well
_FEWEST_WORDS = 5  # A shorter statement says too little to tell problems apart

_Reason = Literal["same name", "same statement", "n-grams in common"]
# Why two problems are the same, and the Jaccard similarity of their statements' n-grams, 0 to 1.
_Likeness = tuple[_Reason, float | None]


@dataclass(frozen=True)
class DuplicatePair:
    """Two rows of one problem, each without its tests: they may be large, and nothing here compares them."""

    dropped: Problem
    """Of an overlap, the training set's."""
    kept: Problem
    reason: _Reason
    similarity: float | None
    """0 to 1; None where a statement is missing or too short, and the names alone are the same."""


def find_duplicates(problems: Iterable[Problem]) -> list[DuplicatePair]:
    """A pair for each problem that is dropped, with the most similar of those that are kept; by id.

    Kept is the one with a known solution, then with more tests, the longer prompt, the smaller id. Problems are gone
    through in that order, and one is dropped if it equals one that is kept: likeness is not passed on.

    """
    everything = _compare_all(problems, GramHasher())
    partners = _Partners(everything, everything)
    kept: dict[str, list[_Compared]] = defaultdict(list)
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
    """A pair for each training problem that the evaluation has too, with its most similar there; by id."""
    hasher = GramHasher()
    ours, theirs = _compare_all(training, hasher), _compare_all(evaluation, hasher)
    partners = _Partners(ours, theirs)
    there: dict[str, list[_Compared]] = defaultdict(list)
    for it in theirs:
        for place in partners.places(it):
            there[place].append(it)
    pairs = [_most_similar(it, (other for place in partners.of(it) for other in there[place])) for it in ours]
    return sorted((pair for pair in pairs if pair), key=lambda pair: (pair.dropped.id, pair.kept.id))


@dataclass(frozen=True)
class _Compared:
    problem: Problem
    preference: tuple[bool, int, int, str, str, str]
    """The smaller one is kept: with a known solution, more tests, the longer prompt; then by what they say."""
    names: ProblemNames
    statement: StatementWords
    grams: UInt64
    """Empty where the statement has fewer than `_FEWEST_WORDS`."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the statement's words, hex; empty where it has too few."""
        if not self.grams.size:
            return ""
        return hashlib.sha256(" ".join(self.statement.words).encode(errors="surrogatepass")).hexdigest()

    @property
    def name_places(self) -> list[str]:
        return sorted(f"name {slug}" for slug in self.names.slugs)


def _prepare(problem: Problem, hasher: GramHasher) -> _Compared:
    statement = words_of_prompt("" if problem.tests.kind == "answer" else problem.prompt)
    words = statement.words if len(statement.words) >= _FEWEST_WORDS else ()
    tests = problem.tests
    preference = (
        not problem.solution, -len(tests.source), -len(problem.prompt), problem.id, problem.prompt, tests.hash
    )  # fmt: skip
    light = replace(problem, tests=TestSuite(tests.kind, ""), public_tests=None)
    return _Compared(light, preference, names_of(problem), statement, hasher.grams(words))


class _Partners:
    # Finds candidates for the same problem: by its names, its statement, and statements near to it.
    def __init__(self, ours: Sequence[_Compared], theirs: Sequence[_Compared]) -> None:
        left, right = ({it.digest: it.grams for it in side if it.digest} for side in (ours, theirs))
        self._near: Mapping[str, list[str]] = defaultdict(list)
        our_digests, their_digests = list(left), list(right)
        for i, j in similar_pairs(list(left.values()), list(right.values()), _THRESHOLD):
            self._near[our_digests[i]].append(their_digests[j])

    def places(self, it: _Compared) -> list[str]:
        return [*it.name_places, *([it.digest] if it.digest else [])]

    def of(self, it: _Compared) -> list[str]:
        return [*it.name_places, *(self._near.get(it.digest, []) if it.digest else [])]


def _compare_all(problems: Iterable[Problem], hasher: GramHasher) -> list[_Compared]:
    return sorted((_prepare(problem, hasher) for problem in problems), key=lambda it: it.preference)


def _most_similar(it: _Compared, others: Iterable[_Compared]) -> DuplicatePair | None:
    found = [(other, likeness) for other in others if (likeness := _likeness_of(it, other)) is not None]
    if not found:
        return None
    other, (reason, similarity) = min(
        found, key=lambda pair: (1.0 if pair[1][1] is None else -pair[1][1], pair[0].preference)
    )
    return DuplicatePair(it.problem, other.problem, reason, similarity)


def _likeness_of(one: _Compared, another: _Compared) -> _Likeness | None:
    """None where they are two problems. Symmetric."""
    if are_variants(one.names, another.names):
        return None
    named = bool(one.names.slugs & another.names.slugs)
    if not one.digest or not another.digest:
        return ("same name", None) if named else None
    similarity = 1.0 if one.digest == another.digest else jaccard(one.grams, another.grams)
    if named and similarity >= _WITH_NAME:
        return "same name", similarity
    if similarity < _THRESHOLD or contrast_of(one.statement.all_words, another.statement.all_words):
        return None
    return "same statement" if one.digest == another.digest else "n-grams in common", similarity


_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_VALUES = {word: str(value) for value, word in enumerate(_NUMBERS)} | {"once": "1", "twice": "2", "thrice": "3"}
# `one of them`, `0-indexed`: they come and go without a change of meaning; so do numbers of three digits and more,
# which are bounds.
_UNIMPORTANT = frozenset({"0", "1"})
_NEGATIONS = frozenset({"not", "never", "cannot", "cant", "dont", "doesnt", "isnt", "arent", "mustnt", "neither"})
_FAMILIES = tuple(
    tuple(frozenset(side.split()) for side in family.split("|"))
    for family in (
        "maximum max maximal maximize maximise maximizing largest greatest biggest highest longest latest farthest most"
        "|minimum min minimal minimize minimise minimizing smallest fewest lowest shortest earliest nearest least",
        "odd|even",
        "ascending increasing nondecreasing|descending decreasing nonincreasing",
        "preorder pre|inorder|postorder post|level",
        "row rows horizontal horizontally|column columns vertical vertically",
        "left leftmost|right rightmost",
        "first|last",
        "prefix prefixes|suffix suffixes",
        "sum sums|product products|difference differences|xor|average|quotient",
        "add addition|subtract subtraction|multiply multiplication|divide division",
        "union|intersection",
        "lowercase|uppercase",
        "inclusive|exclusive",
        "subarray subarrays|subsequence subsequences|substring substrings|subset subsets|subtree subtrees",
        "directed|undirected",
        "encode encoded|decode decoded",
        "before|after",
        "smaller less lower fewer|larger greater more higher",
        "any|all every|each",
        "area|perimeter|volume|diagonal",
        "circle|square|rectangle|triangle|cube|sphere|cylinder|cone",
        "string|list|tuple|dictionary|set|array",
        "push|pop",
        "hours|minutes|seconds|days",
        "red|green|blue|white|black",
    )
)


def contrast_of(one: Sequence[str], another: Sequence[str]) -> str:
    """What makes two statements different although all other words agree, such as `minimum / maximum`; empty where
    nothing speaks against their being the same."""
    ours, theirs = Counter(one), Counter(another)
    surplus, theirs_surplus = ours - theirs, theirs - ours
    numbers = _numbers(ours) ^ _numbers(theirs)
    if numbers:
        return f"number {min(numbers)}"
    if _negations(ours) != _negations(theirs):
        return "negation"
    for family in _FAMILIES:
        sides = [(side & surplus.keys(), side & theirs_surplus.keys()) for side in family]
        for here, (mine, _) in enumerate(sides):
            for there, (_, yours) in enumerate(sides):
                if here != there and mine and yours and not (sides[here][1] or sides[there][0]):
                    return " / ".join(sorted((min(mine), min(yours))))
    return ""


def _numbers(words: Counter[str]) -> frozenset[str]:
    found = {_VALUES.get(word, word) for word in words if word in _VALUES or (word.isdecimal() and len(word) < 3)}
    return frozenset(found) - _UNIMPORTANT


def _negations(words: Counter[str]) -> int:
    return sum(words[word] for word in _NEGATIONS)


_CODEFORCES = re.compile(r"(\d{1,4})[_/ ]?([A-Z])(\d?)(?:\.\s*(.+))?")
_CODEFORCES_URL = re.compile(r"codeforces\.com/(?:contest|problemset/problem|gym)/(\d+)(?:/problem)?/([A-Za-z])(\d?)\b")
_LEETCODE_URL = re.compile(r"leetcode\.(?:com|cn)/problems/([\w-]+)")
_ATCODER_URL = re.compile(r"atcoder\.jp/contests/[\w-]+/tasks/(\w+)")
_HASH = re.compile(r"[0-9a-f]{12,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SERIES = re.compile(r"(.+?)-(i{1,3}|iv|vi{0,3}|ix|x|(?:easy|medium|hard)-version|(?:version|part)-\d+)(?:-.*)?")


@dataclass(frozen=True)
class ProblemNames:
    """By a problem's source: `two-sum`, `Two Sum II`, `1268_B. Domino for Young`, an address. The same problem of
    another source has one of these names, or none is known. A bare number or a hash is no name: `11` is another problem
    in each data set."""

    slugs: frozenset[str]
    series: frozenset[tuple[str, str]]
    """Each name as (what it shares with its sequels, which of them it is): `("two-sum", "ii")`, `("two-sum", "")`."""


def names_of(problem: Problem) -> ProblemNames:
    """By its id, and by the `title` and `url` of its metadata; where it asks for a value, by its prompt alone."""
    if problem.tests.kind == "answer":  # many are asked about one program or statement
        asked = " ".join(problem.prompt.split()).encode(errors="surrogatepass")
        return ProblemNames(frozenset({f"answer {hashlib.sha256(asked).hexdigest()}"}), frozenset())
    slugs: set[str] = set()
    series: set[tuple[str, str]] = set()
    for text in (problem.id, problem.metadata.get("title", "")):
        found = _CODEFORCES.fullmatch(text.strip())
        if found:
            _codeforces(found[1], found[2], found[3], slugs, series)
            text = found[4] or ""
        slugs |= set(_slug(text))
    _by_url(problem.metadata.get("url", "") or (problem.id if "://" in problem.id else ""), slugs, series)
    for slug in slugs:
        if not slug.startswith("codeforces "):
            found = _SERIES.fullmatch(slug)
            series.add((found[1], found[2]) if found else (slug, ""))
    return ProblemNames(frozenset(slugs), frozenset(series))


def are_variants(one: ProblemNames, another: ProblemNames) -> bool:
    """Whether they are two of one series: `Two Sum` and `Two Sum II`, an easy and a hard version."""
    if one.slugs & another.slugs:
        return False
    stems = {stem for stem, _ in one.series} & {stem for stem, _ in another.series}
    return any(not {it for it in one.series & another.series if it[0] == stem} for stem in stems)


def _slug(text: str) -> Iterator[str]:
    slug = "-".join(re.findall(r"[^\W_]+", text.casefold()))
    if any(c.isalpha() for c in slug) and not _HASH.fullmatch(slug) and "://" not in text:
        yield slug


def _by_url(url: str, slugs: set[str], series: set[tuple[str, str]]) -> None:
    if found := _CODEFORCES_URL.search(url):
        _codeforces(found[1], found[2].upper(), found[3], slugs, series)
    for pattern in (_LEETCODE_URL, _ATCODER_URL):
        if found := pattern.search(url):
            slugs |= set(_slug(found[1]))


def _codeforces(contest: str, letter: str, part: str, slugs: set[str], series: set[tuple[str, str]]) -> None:
    slugs.add(f"codeforces {contest}{letter}{part}")
    series.add((f"codeforces {contest}{letter}", part))
