"""Arithmetic in GSM8K's form, and responses that state a value in one of eight notations."""

from __future__ import annotations

import random
from fractions import Fraction

NOTATIONS = 8


def arithmetic_rows(seed: int, count: int = 200) -> list[tuple[dict[str, str], Fraction]]:
    """(row, value): values are whole, or end after two decimals."""
    draw, found = random.Random(seed), []
    for number in range(count):
        a, b, c = (draw.randint(2, 4000) for _ in range(3))
        value = Fraction(a * b - c, draw.choice((1, 1, 1, 2, 4, 20)))
        shown = f"{value.numerator / value.denominator:,.2f}".removesuffix(".00")
        solution = f"{a}*{b}=<<{a}*{b}={a * b}>>{a * b}\n#### {shown}"
        found.append(({"question": f"{number}: {a} boxes of {b}, {c} gone?", "answer": solution}, value))
    return found


def stated(value: Fraction, notation: int) -> str:
    """A response that ends in the value, after an earlier box."""
    top, bottom = value.numerator, value.denominator
    text = f"{float(value):,.4f}".rstrip("0").rstrip(".")
    endings = (
        f"\\boxed{{{text}}}",
        f"So \\( x = \\boxed{{{text.replace(',', '{,}')}}} \\).",
        f"#### {text}",
        f"The answer is ${text}$.",
        f"[ANSWER] {text.replace(',', '')} [/ANSWER]",
        f"\\boxed{{\\dfrac{{{3 * top}}}{{{3 * bottom}}}}} as asked",
        f"**Answer:** $x = \\frac{{{top}}}{{{bottom}}}$",
        f"\\boxed{{{float(100 * value):.4f}\\%}}",
    )
    return f"First 2 + 2 = 4, four.\n{endings[notation]}\n"
