"""Coats: what can be put on a program without a change of its answers.

    for dressed in dressed_programs():
        dressed.algorithm, dressed.kind, dressed.coat, dressed.problem, dressed.code

The texts of coats and helpers are in `coats.txt`. They name the program's parts: `BEST` its result, `ITER` its first
argument where it is read, `CALL` a call of a helper that belongs to some other algorithm, `FIRST` the first argument,
`ITEMS` integers made from it, `LARGE` a condition that no test meets.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.dressing.dressing_texts import ALGORITHMS, Algorithm, function, make_problem, read_texts, source_of
from raypoly.core.values import Problem

UNDRESSED, JOINT, REDUNDANT = "undressed", "joint", "redundant"
_GUARDS_A_HELPER = 3


@dataclass(frozen=True)
class Dressed:
    """One program of one algorithm in one coat."""

    algorithm: str
    kind: str
    coat: str
    problem: Problem
    code: str
    second: str = ""
    """The second algorithm alone, where the coat is one that does the same work or more."""


@dataclass(frozen=True)
class Coat:
    """Texts around and inside a program; empty ones change nothing."""

    kind: str
    name: str
    top: str = ""
    """Above the function."""
    before: str = ""
    """The function's first lines."""
    items: str = ""
    """In place of `ITER`."""
    after: str = ""
    result: str = ""
    """In place of the result."""
    around: str = ""
    """Body of a function that calls `INNER`, the program, and takes its place."""
    only: str = ""
    """What it fits: arguments, results or "any order", with commas; empty for all."""


VALUES = {
    "ints": "list(source)",
    "rows": "[v for row in source for v in row]",
    "text": "[ord(c) for c in source]",
    "number": "list(range(source % 40))",
}
"""A helper's integers, by what the first argument is."""


def _read_coats(*kinds: str) -> tuple[Coat, ...]:
    """The file's coats of these kinds, in order."""
    coats: dict[tuple[str, str, str], Coat] = {}
    for kind in kinds:
        for heading, text in _TEXTS[kind].items():
            place, _, name = heading.partition(": ")
            part, _, only = place.partition(" for ")
            coat = coats.get((kind, name, only), Coat(kind, name, only=only))
            is_expression = part in ("items", "result")
            coats[kind, name, only] = replace(coat, **{part: text.strip() if is_expression else text})
    return tuple(coats.values())


_TEXTS = read_texts("coats.txt")
HELPERS = _TEXTS["helpers"]
"""Bodies of helpers that return an integer, by what other algorithm they look like."""
GUARDS = _read_coats("helper never run", "helper run, not read", "helper read, no effect")
"""How a helper's result is taken without effect."""
INLINE = _read_coats("input copied", "result unchanged", "work beside", "wrapped")
"""What calls no helper."""
MERGES = _read_coats(REDUNDANT)
"""How the results of two algorithms, `CALL` the second one's, become one."""


def dress(algorithm: Algorithm, coats: Sequence[Coat], helpers: Sequence[str] = ()) -> str:
    """The algorithm's program in all these coats; the n-th coat that calls a helper calls the n-th of `helpers`."""
    before, after, items, results, around = "", "", algorithm.first, [], ""
    calls = iter([f"d{place or ''}({algorithm.first})" for place in range(len(helpers))])
    tops = [
        function(f"d{place or ''}", "source", f"values = {VALUES[algorithm.argument]}\n{HELPERS[helper]}")
        for place, helper in enumerate(helpers)
    ]
    for coat in coats:
        call = next(calls) if "CALL" in coat.before + coat.after + coat.result else ""
        named = {text: getattr(coat, text).replace("CALL", call) for text in ("top", "before", "after", "result")}
        tops.append(named["top"])
        before += named["before"]
        after = named["after"] + after
        items = coat.items.replace("ITER", items) if coat.items else items
        results += [named["result"]] if coat.result else []
        around = coat.around or around
    lines = [f"best = {text.replace('BEST', 'best')}\n" for text in results[:-1]]
    returned = f"return {results[-1].replace('BEST', 'best') if results else 'best'}\n"
    body = before + algorithm.body.replace("ITER", items) + after + "".join(lines) + returned
    return _filled(algorithm, "".join(tops), body, around)


def _filled(algorithm: Algorithm, top: str, body: str, around: str) -> str:
    """The whole program, a function or a class."""
    first, parameters = algorithm.first, algorithm.parameters
    if around:
        top += function("inner", parameters, body)
        body = around.replace("INNER", f"inner({parameters})")
    if algorithm.method:
        main = function(algorithm.method, f"self, {parameters}", body)
        code = f"{top}class Solution:\n{textwrap.indent(main, '    ')}"
    else:
        code = top + function("f", parameters, body)
    items = VALUES[algorithm.argument].replace("source", first)
    large = "FIRST > 10**12" if algorithm.argument == "number" else "len(FIRST) > 10**6"
    return code.replace("LARGE", large).replace("ITEMS", items).replace("FIRST", first)


def _fitting(coats: Sequence[Coat], algorithm: Algorithm) -> list[Coat]:
    own = {algorithm.argument, algorithm.result, *(["any order"] if algorithm.any_order else [])}
    return [coat for coat in coats if not coat.only or own & set(coat.only.split(", "))]


def _coated(algorithm: Algorithm, shift: int) -> Iterator[tuple[str, str, str]]:
    """Kind, name and program of each coat of an algorithm; `shift` turns which guards each helper gets."""
    names = list(HELPERS)
    guards = _fitting(GUARDS, algorithm)
    inline = _fitting(INLINE, algorithm)
    for turn in range(len(names) * _GUARDS_A_HELPER):
        guard = guards[(turn + shift) % len(guards)]
        helper = names[turn // _GUARDS_A_HELPER]
        yield guard.kind, f"{helper}, {guard.name}", dress(algorithm, [guard], [helper])
    for coat in inline:
        yield coat.kind, coat.name, dress(algorithm, [coat])
    for turn in range(24):
        one, two = guards[(turn * 5 + shift) % len(guards)], guards[(turn * 7 + 3 * shift + 2) % len(guards)]
        helpers = [names[(turn + shift) % len(names)], names[(turn * 2 + 5) % len(names)]]
        edits = [inline[(turn * 11 + shift) % len(inline)], inline[(turn * 13 + 6 * shift + 4) % len(inline)]]
        plans: list[tuple[list[Coat], int]] = [([one, two], 2), (edits, 0), ([one, edits[0]], 1), ([one, *edits], 1)]
        coats, calls = plans[turn % len(plans)]
        yield JOINT, " + ".join(coat.name for coat in coats), dress(algorithm, coats, helpers[:calls])


def dressed_programs() -> Iterator[Dressed]:
    """Every program of the twelve algorithms, each algorithm's undressed one first; no text twice."""
    for place, algorithm in enumerate(ALGORITHMS):
        entry_point = f"Solution().{algorithm.method}" if algorithm.method else "f"
        problem = make_problem(algorithm.name, algorithm.cases, source_of(algorithm), entry_point)
        seen: set[str] = set()
        for kind, name, code in [(UNDRESSED, "", dress(algorithm, [])), *_coated(algorithm, place * 5)]:
            if code not in seen:
                seen.add(code)
                yield Dressed(algorithm.name, kind, name, problem, code)
        other, call = source_of(algorithm, "other", second=True), f"other({algorithm.parameters})"
        alone = dress(replace(algorithm, body=algorithm.other), [])
        for merge in _fitting(MERGES, algorithm):
            coat = replace(merge, top=other, result=merge.result.replace("CALL", call))
            yield Dressed(algorithm.name, REDUNDANT, merge.name, problem, dress(algorithm, [coat]), alone)
