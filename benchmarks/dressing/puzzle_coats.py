"""Six puzzles, each by another construct, in coats that add constructs and change no answer.

A body continues `def f(n):`, one space a level, and leaves its sum in `t`. Mixed ones take a tenth or half of the
numbers by another construct, redundant ones sum a tenth or all of them a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.dressing.coats import UNDRESSED, Dressed
from benchmarks.dressing.dressing_texts import puzzle_problem, read_texts
from raypoly.core.values import Problem

IDLE, COPIED, TENTH, HALVES = "puzzle: idle construct", "puzzle: copied", "puzzle: a tenth mixed in", "puzzle: halves"
CHEAP, TWICE = "puzzle: redundant tenth", "puzzle: redundant, all twice"
PREFIX = "def f(n):\n"
_SIZES = (1, 4, 10, 25, 60)


@dataclass(frozen=True)
class Formula:
    """The sum of `value` over the numbers x from 1 to n that are kept."""

    name: str
    construct: str
    keep: str
    value: str
    kept: Callable[[int], bool]
    valued: Callable[[int], int]
    tenth: int = 5
    """The first number of a residue class mod 10 of which some are kept."""

    @property
    def problem(self) -> Problem:
        expected = {n: sum(map(self.valued, filter(self.kept, range(1, n + 1)))) for n in _SIZES}
        return puzzle_problem(self.name, f"# {self.name}\n{PREFIX}", PREFIX, expected)


FORMULAS = (
    Formula("sum of squares of even numbers", "for", "x % 2 == 0", "x ** 2", lambda x: x % 2 == 0, lambda x: x**2, 4),
    Formula("sum of doubles of odd numbers", "while", "x % 2 == 1", "2 * x", lambda x: x % 2 == 1, lambda x: 2 * x),
    Formula("sum of cubes", "recursion", "x > 0", "x ** 3", lambda x: True, lambda x: x**3),
    Formula("sum of multiples of 3", "comprehension", "x % 3 == 0", "x", lambda x: x % 3 == 0, lambda x: x),
    Formula("sum of halves", "map", "x > 1", "x // 2", lambda x: True, lambda x: x // 2),
    Formula("sum of triples of 1 mod 4", "reduce", "x % 4 == 1", "3 * x", lambda x: x % 4 == 1, lambda x: 3 * x),
)

_TEXTS = read_texts("puzzle_coats.txt")
_ITEMS = "range({start}, n + 1, {step})"
_HALVES = (("classes", "x % 10 < 5", "x % 10 >= 5"), ("lower", "x <= n // 2", "x > n // 2"))


def _total(formula: Formula, construct: str, name: str = "t", start: int = 1, step: int = 1, keep: str = "") -> str:
    """Lines that leave in `name` the sum over every step-th number from start."""
    kept = f"{formula.keep} and {keep}" if keep else formula.keep
    parts = {"t": name, "start": str(start), "step": str(step), "keep": kept, "value": formula.value}
    return _TEXTS["sums"][construct].format(items=_ITEMS.format(**parts), **parts)


def _coated(formula: Formula) -> Iterator[tuple[str, str, str]]:
    own = formula.construct
    base = _total(formula, own)
    yield UNDRESSED, "", f"{base} return t\n"
    for construct, lines in _TEXTS["idle"].items():
        for name, result in _TEXTS["taken"].items():
            yield IDLE, f"{construct}, {name}", f"{lines}{base} return {result}"
        deeper = lines.replace("\n ", "\n  ")
        yield IDLE, f"{construct}, never run", f"{base} if n > 10**6:\n {deeper} return t\n"
    items = _ITEMS.format(start=1, step=1)
    for copy in _TEXTS["copies"] if items in base else ():
        yield COPIED, copy, f"{base.replace(items, copy.format(items=items))} return t\n"
    for result in _TEXTS["results"]:
        yield COPIED, result, f"{base} return {result}\n"
    for name, end in _TEXTS["ends"].items():
        yield COPIED, name, f"{base}{end}"
    for other in (construct for construct in _TEXTS["sums"] if construct != own):
        most = _total(formula, own, keep=f"x % 10 != {formula.tenth}")
        yield TENTH, other, f"{most}{_total(formula, other, 'u', formula.tenth, 10)} return t + u\n"
        for name, own_half, other_half in _HALVES:
            both = _total(formula, own, keep=own_half) + _total(formula, other, "u", keep=other_half)
            yield HALVES, f"{other}, {name}", f"{both} return t + u\n"
        for name, merge in _TEXTS["cheap merges"].items():
            yield CHEAP, f"{other}, {name}", f"{base}{_total(formula, other, 'u', formula.tenth, 10)} return {merge}"


def dressed_puzzles() -> Iterator[Dressed]:
    """Every program of the six puzzles, each puzzle's undressed one first."""
    for formula in FORMULAS:
        problem = formula.problem
        for kind, name, body in _coated(formula):
            yield Dressed(formula.name, kind, name, problem, PREFIX + body)
        base = _total(formula, formula.construct)
        for other in (construct for construct in _TEXTS["sums"] if construct != formula.construct):
            second = f"{PREFIX}{_total(formula, other)} return t\n"
            for name, merge in _TEXTS["merges"].items():
                code = f"{PREFIX}{base}{_total(formula, other, 'u')} return {merge}"
                yield Dressed(formula.name, TWICE, f"{other}, {name}", problem, code, second)
