"""labelled_plans: gold plans of puzzles and wrong ones, as many of each, given with the word that a gate should say.

Nothing is sampled: with `objective.name=supervised` it trains a gate's model (docs/cppo.md).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pydantic import Field

from raypoly.errors import UsageError
from raypoly.gates.gate_question import COMPLETION_TEMPLATE, WORDS, question_prompt
from raypoly.gates.gate_rows import LabelledPlan
from raypoly.problems.puzzles.puzzle_plans import KINDS, gold_tuple, wrong_tuple
from raypoly.problems.puzzles.puzzle_solutions import STRATEGIES
from raypoly.programs.gold_plans import puzzle_or_refuse
from raypoly.programs.program import Ask, Program, ProgramConfig
from raypoly.seeds import derive
from raypoly.values import ATTEMPT, Draft, Problem


class LabelledPlansConfig(ProgramConfig):
    methods: int = Field(4, ge=2, le=len(STRATEGIES), description="K, the methods of a plan.")


class LabelledPlans(Program):
    Config = LabelledPlansConfig
    config: LabelledPlansConfig
    samples = False

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        accept, refuse = WORDS
        return [
            Ask(
                question_prompt(problem, it.plan, WORDS, COMPLETION_TEMPLATE, self.render),
                ATTEMPT,
                text=accept if it.valid else refuse,
            )
            for it in self.labelled(problem, attempts)
        ]

    def labelled(self, problem: Problem, count: int) -> list[LabelledPlan]:
        """Plans for the problem, a valid one and another in turn; the kinds of wrong ones take turns too. Raises
        `UsageError` for a problem that is no puzzle."""
        puzzle, methods = puzzle_or_refuse(problem), self.config.methods
        first = random.Random(derive("labelled plans", problem.id)).randrange(len(KINDS))
        found = []
        for place in range(count):
            rng, valid = random.Random(derive("labelled plans", problem.id, place)), place % 2 == 0
            kind = KINDS[(first + place // 2) % len(KINDS)]
            plan = gold_tuple(puzzle, methods, rng) if valid else wrong_tuple(puzzle, kind, rng, methods)
            found.append(LabelledPlan(problem, plan, valid))
        return found

    def check(self, attempts: int) -> None:
        if attempts % 2:
            raise UsageError(
                f"program.name=labelled_plans gives as many valid plans as others, and train.rollouts={attempts} is "
                "odd: make it even."
            )
