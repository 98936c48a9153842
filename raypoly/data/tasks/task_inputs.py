"""Arguments for the tests of a task: drawn from a small vocabulary of generators, by a seed.

draw_value(DrawnInput(ints=(-5, 5), size=(3, 9)), random.Random(0))        # [4, -2, 0]
"""

from __future__ import annotations

import random
from typing import Any

from pydantic import BaseModel, ConfigDict

_LETTERS = "aaabcdeeefghiilmnnooprsstttuwy"


class DrawnInput(BaseModel):
    """What one argument is drawn from: exactly one of the generators, with bounds that are included."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    number: tuple[int, int] | None = None
    """The smallest and the largest number."""
    ints: tuple[int, int] | None = None
    """A list of such numbers."""
    rows: tuple[int, int] | None = None
    """A list of lists of equal lengths."""
    table: tuple[int, int] | None = None
    """A dictionary from words to such numbers."""
    text: str | None = None
    """A string of these characters."""
    words: tuple[int, int] | None = None
    """A list of words, whose lengths these are."""
    sentence: tuple[int, int] | None = None
    """Such words with one space between two of them."""
    size: tuple[int, int] = (1, 1)
    """The fewest and the most elements."""


def draw_value(drawn: DrawnInput, rng: random.Random) -> Any:
    """One argument, made of values that JSON has."""
    size = rng.randint(*drawn.size)
    if drawn.number is not None:
        return rng.randint(*drawn.number)
    if drawn.ints is not None:
        return [rng.randint(*drawn.ints) for _ in range(size)]
    if drawn.rows is not None:
        width = rng.randint(*drawn.size)
        return [[rng.randint(*drawn.rows) for _ in range(width)] for _ in range(size)]
    if drawn.table is not None:
        return {_word(rng, 1, 5): rng.randint(*drawn.table) for _ in range(size)}
    if drawn.text is not None:
        return "".join(rng.choice(drawn.text) for _ in range(size))
    if drawn.words is not None:
        return [_word(rng, *drawn.words) for _ in range(size)]
    if drawn.sentence is not None:
        return " ".join(_word(rng, *drawn.sentence) for _ in range(size))
    raise ValueError("a drawn input names no generator")


def _word(rng: random.Random, shortest: int, longest: int) -> str:
    return "".join(rng.choice(_LETTERS) for _ in range(rng.randint(shortest, longest)))
