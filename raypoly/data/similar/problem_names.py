"""A problem's names by its source: `two-sum`, `Two Sum II`, `1268_B. Domino for Young`, an address.

    names_of(problem).slugs        # frozenset({"two-sum-ii", ...})
    are_variants(one, another)         # True for "Two Sum" and "Two Sum II": their sources say that they differ

A bare number or a hash is no name: `11` is another problem in each data set.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from raypoly.core.values import Problem

_CODEFORCES = re.compile(r"(\d{1,4})[_/ ]?([A-Z])(\d?)(?:\.\s*(.+))?")
_CODEFORCES_URL = re.compile(r"codeforces\.com/(?:contest|problemset/problem|gym)/(\d+)(?:/problem)?/([A-Za-z])(\d?)\b")
_LEETCODE_URL = re.compile(r"leetcode\.(?:com|cn)/problems/([\w-]+)")
_ATCODER_URL = re.compile(r"atcoder\.jp/contests/[\w-]+/tasks/(\w+)")
_HASH = re.compile(r"[0-9a-f]{12,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SERIES = re.compile(r"(.+?)-(i{1,3}|iv|vi{0,3}|ix|x|(?:easy|medium|hard)-version|(?:version|part)-\d+)(?:-.*)?")


@dataclass(frozen=True)
class ProblemNames:
    """The same problem of another source has one of these names, or none is known."""

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
