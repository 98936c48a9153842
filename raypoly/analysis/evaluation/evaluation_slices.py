"""Parts of an evaluation: its problems by what their metadata say, such as difficulty, budget or date.

    slices_of({"two-sum": {"difficulty": "Easy", "date": "2025-03-02"}, ...})
    {"date": {"2025-03": ["two-sum", ...], ...}, "difficulty": {"Easy": ["two-sum", ...], ...}}

A key is used by itself where it divides the problems into a few parts. Dates are taken by month, or by year where that
gives too many parts. A problem without the key is in none of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MOST_PARTS = 12
_FEWEST_PROBLEMS = 2
"""Problems in a part, in the mean: a title or a number divides nothing."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d")

Slices = Mapping[str, Mapping[str, Sequence[str]]]
"""By key and value, the ids of the problems."""


def slices_of(metadata: Mapping[str, Mapping[str, str]]) -> Slices:
    """The parts of problems whose metadata are given by id; keys and values in order."""
    found: dict[str, Mapping[str, Sequence[str]]] = {}
    for key in sorted({key for own in metadata.values() for key in own}):
        parts = _parts({name: own[key] for name, own in metadata.items() if own.get(key)})
        if 2 <= len(parts) <= min(MOST_PARTS, sum(map(len, parts.values())) // _FEWEST_PROBLEMS):
            found[key] = parts
    return found


def _parts(values: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """The problems' ids by value, the values in order."""
    if values and all(_DAY.match(value) for value in values.values()):
        months = {name: value[:7] for name, value in values.items()}
        values = months if len(set(months.values())) <= MOST_PARTS else {n: value[:4] for n, value in months.items()}
    ordered = sorted(set(values.values()), key=_order)
    return {value: [name for name, own in values.items() if own == value] for value in ordered}


def _order(value: str) -> tuple[float, str]:
    """Numbers by their value, and before other texts."""
    try:
        return float(value), value
    except ValueError:
        return float("inf"), value
