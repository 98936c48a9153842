"""Which problems are the same, and why.

one, another = (prepare_problem(problem, hasher) for problem in problems)
likeness_of(one, another)              # Likeness("same statement", 1.0), or None
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from raypoly.problems.similar.contrast_words import contrast_of
from raypoly.problems.similar.ngrams import GramHasher, UInt64, jaccard
from raypoly.problems.similar.problem_names import ProblemNames, are_variants, names_of
from raypoly.problems.similar.statement_words import StatementWords, words_of_prompt
from raypoly.values import Problem, TestSuite

THRESHOLD = 0.82
"""Similarity from which two statements are one, if nothing speaks against it. Of the 1890 problems of LeetCodeDataset
v0.2, the most similar that differ and that only their names tell apart have 0.81."""
_WITH_NAME = 0.3
"""The same, where both have the same name as well."""
_FEWEST_WORDS = 5
"""A shorter statement says too little to tell problems apart."""

Reason = Literal["same name", "same statement", "n-grams in common"]


@dataclass(frozen=True)
class Likeness:
    """Why two problems are the same."""

    reason: Reason
    similarity: float | None
    """Jaccard similarity of the statements' n-grams, 0 to 1; None where a statement is missing or too short."""


@dataclass(frozen=True)
class ComparedProblem:
    """A problem with what is compared of it."""

    problem: Problem
    """Without its tests, which may be large."""
    preference: tuple[bool, int, int, str, str, str]
    """The smaller one is kept: with a known solution, more tests, the longer prompt; then by what they say."""
    names: ProblemNames
    statement: StatementWords
    grams: UInt64
    """Empty where the statement has fewer than `_FEWEST_WORDS`."""

    @cached_property
    def digest(self) -> str:
        """Of the statement; empty where it has too few words."""
        return self.statement.digest if self.grams.size else ""


def prepare_problem(problem: Problem, hasher: GramHasher) -> ComparedProblem:
    statement = words_of_prompt(problem.prompt)
    words = statement.words if len(statement.words) >= _FEWEST_WORDS else ()
    tests = problem.tests
    preference = (
        not problem.solution, -len(tests.source), -len(problem.prompt), problem.id, problem.prompt, tests.hash
    )  # fmt: skip
    light = replace(problem, tests=TestSuite(tests.kind, ""))
    return ComparedProblem(light, preference, names_of(problem), statement, hasher.grams(words))


def likeness_of(one: ComparedProblem, another: ComparedProblem) -> Likeness | None:
    """Whether they are one problem; None where they are two. The order of the two does not matter."""
    if are_variants(one.names, another.names):
        return None
    named = bool(one.names.slugs & another.names.slugs)
    if not one.digest or not another.digest:
        return Likeness("same name", None) if named else None
    similarity = 1.0 if one.digest == another.digest else jaccard(one.grams, another.grams)
    if named and similarity >= _WITH_NAME:
        return Likeness("same name", similarity)
    if similarity < THRESHOLD or contrast_of(one.statement.all_words, another.statement.all_words):
        return None
    return Likeness("same statement" if one.digest == another.digest else "n-grams in common", similarity)
