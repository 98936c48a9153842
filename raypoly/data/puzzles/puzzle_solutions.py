"""Solutions of a puzzle: right ones, one renderer a strategy, with harmless variation of names, and wrong ones.

    render_solution(puzzle, "for", random.Random(0))     ->  " s = 0\\n for x in range(1, n + 1):\\n  if ..."

A body continues the puzzle's signature: lines are indented by one space a level. Wrong ones are for the warm start: a
policy that errs has something to learn.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass

from raypoly.data.puzzles.puzzle_language import AGGREGATES, ALL, COUNT, FILTERS, MAPS, SAME, Puzzle

Renderer = Callable[["Style", Puzzle], str]

PRELUDE = "from functools import reduce\n"


@dataclass(frozen=True)
class Style:
    """The free choices of a writer."""

    element: str
    total: str

    @staticmethod
    def draw(rng: random.Random) -> Style:
        return Style(rng.choice("xik"), rng.choice("str"))


def _iterable(puzzle: Puzzle) -> str:
    """The source as something to iterate; digits come as characters."""
    return {"up_to": "range(1, n + 1)", "below": "range(n)", "between": "range(a, b + 1)", "digits": "s"}[
        puzzle.source.name
    ]


def _numbers(puzzle: Puzzle) -> str:
    """The source as an iterable of numbers."""
    return "map(int, s)" if puzzle.source.name == "digits" else _iterable(puzzle)


def _fill(template: str, element: str) -> str:
    return template.replace("X", element)


def _element(puzzle: Puzzle, name: str) -> str:
    """The element as a number inside an expression whose loop variable is `name`."""
    return f"int({name})" if puzzle.source.name == "digits" else name


def _value(puzzle: Puzzle, element: str) -> str:
    value = _fill(puzzle.map.template, element)
    return value if puzzle.filter is ALL else f"{value} if {_fill(puzzle.filter.template, element)} else 0"


def _total(style: Style, puzzle: Puzzle) -> str:
    """The accumulator's name; `s` is taken where it is the argument."""
    return "t" if puzzle.source.name == "digits" and style.total == "s" else style.total


def _fold(puzzle: Puzzle, total: str, value: str) -> str:
    return f"{total} = max({total}, {value})" if puzzle.aggregate.name == "max" else f"{total} += {value}"


def _finish(puzzle: Puzzle, expression: str) -> str:
    """The result of an accumulator that began at the aggregate's start."""
    return f"{expression} % 7" if puzzle.aggregate.name == "mod" else expression


def _collected(puzzle: Puzzle, iterable: str) -> str:
    return {
        "sum": f"sum({iterable})",
        "count": f"sum({iterable})",
        "more": f"1 + sum({iterable})",
        "mod": f"sum({iterable}) % 7",
        "max": f"max({iterable}, default=0)",
    }[puzzle.aggregate.name]


def _loop_body(puzzle: Puzzle, total: str, x: str) -> str:
    if puzzle.filter is ALL:
        return f"  {_fold(puzzle, total, _value(puzzle, x))}\n"
    condition = _fill(puzzle.filter.template, x)
    return f"  if {condition}:\n   {_fold(puzzle, total, _fill(puzzle.map.template, x))}\n"


def _for(style: Style, puzzle: Puzzle) -> str:
    total, x = _total(style, puzzle), style.element
    head = f" {total} = {puzzle.aggregate.start}\n for {x} in {_iterable(puzzle)}:\n"
    if puzzle.source.name == "digits":
        head = f" {total} = {puzzle.aggregate.start}\n for c in s:\n  {x} = int(c)\n"
    return f"{head}{_loop_body(puzzle, total, x)} return {_finish(puzzle, total)}\n"


def _while(style: Style, puzzle: Puzzle) -> str:
    total, x = _total(style, puzzle), style.element
    begin, condition, number, advance = {
        "up_to": (f" {x} = 1\n", f"{x} <= n", "", f"  {x} += 1\n"),
        "below": (f" {x} = 0\n", f"{x} < n", "", f"  {x} += 1\n"),
        "between": ("", "a <= b", "", "  a += 1\n"),
        "digits": ("", "s", f"  {x} = int(s[0])\n", "  s = s[1:]\n"),
    }[puzzle.source.name]
    element = "a" if puzzle.source.name == "between" else x
    body = _loop_body(puzzle, total, element)
    return (
        f" {total} = {puzzle.aggregate.start}\n{begin} while {condition}:\n{number}{body}{advance}"
        f" return {_finish(puzzle, total)}\n"
    )


def _recursion(style: Style, puzzle: Puzzle) -> str:
    stop, step, x, call = {
        "up_to": ("n == 0", "", "n", "f(n - 1)"),
        "below": ("n == 0", " n -= 1\n", "n", "f(n)"),
        "between": ("a > b", "", "a", "f(a + 1, b)"),
        "digits": ("not s", f" {style.element} = int(s[0])\n", style.element, "f(s[1:])"),
    }[puzzle.source.name]
    value = _value(puzzle, x)
    if puzzle.aggregate.name == "max":
        result = f"max({call}, {value})"
    else:
        result = _finish(puzzle, f"{call} + {value}" if puzzle.filter is ALL else f"{call} + ({value})")
        if puzzle.aggregate.name == "mod":
            result = f"({call} + ({value})) % 7"
    return f" if {stop}:\n  return {puzzle.aggregate.start}\n{step} return {result}\n"


def _comprehension(style: Style, puzzle: Puzzle) -> str:
    name = "c" if puzzle.source.name == "digits" else style.element
    x = _element(puzzle, name)
    condition = "" if puzzle.filter is ALL else f" if {_fill(puzzle.filter.template, x)}"
    values = f"[{_fill(puzzle.map.template, x)} for {name} in {_iterable(puzzle)}{condition}]"
    return f" return {_collected(puzzle, values)}\n"


def _higher_order(style: Style, puzzle: Puzzle) -> str:
    x, values = style.element, _numbers(puzzle)
    if puzzle.filter is not ALL:
        values = f"filter(lambda {x}: {_fill(puzzle.filter.template, x)}, {values})"
    if puzzle.map is not SAME or puzzle.filter is ALL:
        values = f"map(lambda {x}: {_fill(puzzle.map.template, x)}, {values})"
    return f" return {_collected(puzzle, values)}\n"


def _reduce(style: Style, puzzle: Puzzle) -> str:
    total = _total(style, puzzle)
    name = "c" if puzzle.source.name == "digits" else style.element
    value = _value(puzzle, _element(puzzle, name))
    if puzzle.aggregate.name == "max":
        body = f"max({total}, {value})"
    else:
        body = f"{total} + {value}" if puzzle.filter is ALL else f"{total} + ({value})"
    call = f"reduce(lambda {total}, {name}: {body}, {_iterable(puzzle)}, {puzzle.aggregate.start})"
    return f" return {_finish(puzzle, call)}\n"


RENDERERS: dict[str, Renderer] = {
    "for": _for,
    "while": _while,
    "recursion": _recursion,
    "comprehension": _comprehension,
    "higher_order": _higher_order,
    "reduce": _reduce,
}
STRATEGIES = tuple(RENDERERS)


def render_solution(puzzle: Puzzle, strategy: str, rng: random.Random) -> str:
    return RENDERERS[strategy](Style.draw(rng), puzzle)


# Small changes of text that usually change the result.
_SLIPS = (
    ("n + 1)", "n)"),
    ("b + 1)", "b)"),
    ("range(n)", "range(1, n)"),
    ("<= n", "< n"),
    ("<= b", "< b"),
    ("< n", "<= n"),
    ("n == 0", "n == 1"),
    ("a > b", "a == b"),
    ("not s", "len(s) == 1"),
    ("% 2 == 0", "% 2"),
    ("% 3 == 0", "% 3"),
    (" += 1\n", " += 2\n"),
    ("s[1:]", "s[2:]"),
    (" = 0\n", " = 1\n"),
    (", 0)", ")"),
    ("+ (", "* ("),
)


def _neighbour(puzzle: Puzzle, rng: random.Random) -> Puzzle:
    """Another puzzle that differs in one part, so that its right solution is wrong here."""
    parts = ["filter", "map", "aggregate"] if puzzle.aggregate is not COUNT else ["filter"]
    part = rng.choice(parts)
    if part == "filter":
        others = [f for f in FILTERS if f is not puzzle.filter and (puzzle.aggregate is not COUNT or f is not ALL)]
        return dataclasses.replace(puzzle, filter=rng.choice(others))
    if part == "map":
        return dataclasses.replace(puzzle, map=rng.choice([m for m in MAPS if m is not puzzle.map]))
    return dataclasses.replace(puzzle, aggregate=rng.choice([a for a in AGGREGATES if a is not puzzle.aggregate]))


def _slip(body: str, rng: random.Random) -> str:
    found = [(old, new) for old, new in _SLIPS if old in body]
    return body.replace(*rng.choice(found), 1) if found else body


def _break(body: str, rng: random.Random) -> str:
    """One character or one line lost: most of these do not parse."""
    if rng.random() < 0.5:
        lines = body.splitlines(keepends=True)
        del lines[rng.randrange(len(lines))]
        return "".join(lines) or " return\n"
    at = rng.randrange(1, len(body) - 1)
    return body[:at] + body[at + 1 :]


def render_mistake(puzzle: Puzzle, strategy: str, rng: random.Random) -> str:
    """A body by `strategy` that is meant to be wrong: half solve a neighbour, the rest slip or are broken text."""
    kind = rng.random()
    if kind < 0.5:
        return render_solution(_neighbour(puzzle, rng), strategy, rng)
    body = render_solution(puzzle, strategy, rng)
    slipped = _slip(body, rng) if kind < 0.75 else body
    return _break(body, rng) if slipped == body else slipped
