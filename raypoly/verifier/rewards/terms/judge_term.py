"""A grade of the language model that judges (`judge.name=openai`), by a question of yours: 0 to 1.

The stage `grades` asks once for all responses of a group, which are shown as written; limits, cache, budget and pause
are the judge's. A group that it can't grade has no such term.
Known to go wrong: a model's taste can be flattered; compare with a judge that the policy is not trained on.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from raypoly.core.values import Float64
from raypoly.verifier.rewards.answered_group import AnsweredGroup
from raypoly.verifier.rewards.terms.term import Term, TermConfig

GRADES = "grades"
"""The stage."""


class JudgeConfigOfTerm(TermConfig):
    question: str = Field(
        "Would an expert who has to maintain it find it clear and simple?",
        min_length=1,
        description="By what responses are graded.",
    )


class JudgeTerm(Term):
    Config = JudgeConfigOfTerm
    needs: ClassVar[frozenset[str]] = frozenset({GRADES})

    def compute(self, group: AnsweredGroup) -> Float64:
        given = group.findings.get(GRADES)
        found: Float64 = np.full(group.size, np.nan) if given is None else np.asarray(given)[list(group.places)]
        return found
