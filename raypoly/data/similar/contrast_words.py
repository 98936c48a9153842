"""Words that make two problems different although all the others agree: minimum and maximum, two and three, not.

contrast_of(one, another)         # "minimum / maximum", or "" where nothing speaks against their being the same
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
