"""Categories of algorithms, for D_alg: the ten, the classifier's question, and its agreement with people.

    agreement = CategoryAgreement.of(annotator_1, annotator_2, gold, classifier)    # names of categories, one a method
    agreement.reported                                                              # kappa >= 0.6 and macro F1 >= 0.7

Equation 16 of arXiv 2605.27000; the thresholds are those of its appendix F.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from raypoly.core.errors import UsageError
from raypoly.data.formats.row_fields import error_reason
from raypoly.data.formats.row_files import rows_of

LEAST_KAPPA, LEAST_MACRO_F1 = 0.6, 0.7

Category = Literal[
    "dp", "greedy", "graph", "search/backtrack", "number-theory/math",
    "simulation", "data-structure", "divide-and-conquer", "brute-force", "other",
]  # fmt: skip
CATEGORIES: tuple[Category, ...] = get_args(Category)
"""The study's."""
INDEPENDENT = 4
"""Attempts that are drawn independently are compared as many at once: the study's K."""
QUESTION = (
    "Which class of algorithms does it describe, or implement? The grade is the number of the one that matches best: "
    + ", ".join(f"{number} {name}" for number, name in enumerate(CATEGORIES, 1))
    + ". 0 where it has no algorithm at all."
)
"""The classifier's, to a judge that grades from 0 to 10."""

Names = Sequence[Hashable]


def category_of(grade: float) -> Category | None:
    """The category of a grade by `QUESTION`, 0 to 1; None, unknown, for any that names none."""
    number = round(10 * grade) if 0 < grade <= 1 else 0
    return CATEGORIES[number - 1] if number else None


class LabelledMethod(BaseModel):
    """A method, or program, that two people labelled each by themselves, and then together."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    statement: str
    method: str
    annotators: tuple[Category, Category]
    gold: Category


def read_labelled_methods(path: str) -> Sequence[LabelledMethod]:
    """The rows of a file of JSON lines. Raises `UsageError`."""
    found = []
    for number, row in rows_of(Path(path).expanduser()):
        try:
            found.append(LabelledMethod.model_validate(row))
        except ValidationError as error:
            raise UsageError(
                f"evaluate.categories={path} row {number} is no labelled method: {error_reason(error)}."
            ) from None
    if not found:
        raise UsageError(f"evaluate.categories={path} is empty: give it labelled methods (docs/scaffolds.md).")
    return found


@dataclass(frozen=True)
class CategoryAgreement:
    kappa: float | None
    """Of the annotators; None where both know one category alone."""
    accuracy: float
    """Of the classifier."""
    macro_f1: float

    @classmethod
    def of(cls, annotator_1: Names, annotator_2: Names, gold: Names, classifier: Names) -> Self:
        """`gold`: what the annotators agreed on in the end. Raises `ValueError` unless each names the same methods."""
        counts = [len(names) for names in (annotator_1, annotator_2, gold, classifier)]
        if len(set(counts)) > 1 or not counts[0]:
            raise ValueError(f"both annotators, gold and classifier must name the same methods, got {counts} names")
        return cls(cohen_kappa(annotator_1, annotator_2), _agreement(gold, classifier), macro_f1(gold, classifier))

    @property
    def reported(self) -> bool:
        return self.kappa is not None and self.kappa >= LEAST_KAPPA and self.macro_f1 >= LEAST_MACRO_F1


def cohen_kappa(one: Names, other: Names) -> float | None:
    """(p_o - p_e)/(1 - p_e): agreement beyond chance (Cohen 1960); None where chance alone agrees throughout."""
    ones, others = Counter(one), Counter(other)
    by_chance = sum(ones[name] * others[name] for name in ones)  # of all n * n pairs
    if by_chance == len(one) ** 2:
        return None
    chance = by_chance / len(one) ** 2
    return (_agreement(one, other) - chance) / (1 - chance)


def macro_f1(gold: Names, given: Names) -> float:
    """Mean F1 over the categories that either names."""
    right = Counter(name for name, same in zip(gold, given, strict=True) if name == same)
    named = Counter(gold) + Counter(given)
    return sum(2 * right[name] / named[name] for name in named) / len(named)


def _agreement(one: Names, other: Names) -> float:
    return sum(a == b for a, b in zip(one, other, strict=True)) / len(one)


def algorithmic_diversity(categories: Sequence[Hashable]) -> float | None:
    """D_alg: distinct categories of the K methods, over K; None without methods. Report it where a
    `CategoryAgreement` lets it pass."""
    return len(set(categories)) / len(categories) if categories else None
