"""labelled_plans: gold plans of puzzles and wrong ones, as many of each, given with the word that a gate should say.

Nothing is sampled: with `objective.name=supervised` it trains a gate's model (docs/cppo.md).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache

from pydantic import Field

from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import ATTEMPT, Draft, Problem
from raypoly.data.puzzles.puzzle_plans import KINDS, gold_tuple, is_gold, wrong_tuple
from raypoly.data.puzzles.puzzle_solutions import STRATEGIES
from raypoly.recipes.cppo.gates.gate_question import COMPLETION_TEMPLATE, WORDS, question_prompt
from raypoly.recipes.cppo.gates.gate_rows import LabelledPlan
from raypoly.recipes.cppo.gates.written_plans import written_plans
from raypoly.recipes.cppo.gold_plans import puzzle_or_refuse
from raypoly.rollouts.scaffolds.plan_contract import read_plan
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig


class LabelledPlansConfig(ScaffoldConfig):
    methods: int = Field(4, ge=2, le=len(STRATEGIES), description="K, the methods of a plan.")
    plans_of: tuple[str, ...] = Field(
        (),
        description="Folders of runs that have trained a planner on the same puzzles: the newest plans that it wrote "
        "take half of the places of valid plans, and of others (rounded up), as far as there are any.",
    )


class LabelledPlans(Scaffold):
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
        """Plans for the problem, a valid one and another in turn; the kinds of wrong ones take turns too. Plans of
        `plans_of` come first. Raises `UsageError` for a problem that is no puzzle."""
        puzzle, methods = puzzle_or_refuse(problem), self.config.methods
        written = self._written(problem, (count + 3) // 4)
        first = random.Random(derive("labelled plans", problem.id)).randrange(len(KINDS))
        found = []
        for place in range(count):
            rng, valid = random.Random(derive("labelled plans", problem.id, place)), place % 2 == 0
            kind = "gold" if valid else KINDS[(first + place // 2) % len(KINDS)]
            if place // 2 < len(written[valid]):
                kind, plan = "written", written[valid][place // 2]
            else:
                plan = gold_tuple(puzzle, methods, rng) if valid else wrong_tuple(puzzle, kind, rng, methods)
            found.append(LabelledPlan(problem, plan, valid, kind))
        return found

    def _written(self, problem: Problem, most: int) -> Mapping[bool, Sequence[str]]:
        """The newest plans of `plans_of` for the problem, so many valid and so many others at most."""
        methods, puzzle = self.config.methods, puzzle_or_refuse(problem)
        found: dict[bool, list[str]] = {True: [], False: []}
        for plan in reversed(_plans_of(self.config.plans_of, methods).get(problem.id, ())):
            found[is_gold(puzzle, read_plan(plan, methods).branches)].append(plan)
        return {valid: plans[:most] for valid, plans in found.items()}

    def check(self, attempts: int) -> None:
        if attempts % 2:
            raise UsageError(
                f"scaffold.name=labelled_plans gives as many valid plans as others, and train.rollouts={attempts} is "
                "odd: make it even."
            )


@lru_cache(maxsize=1)
def _plans_of(runs: tuple[str, ...], methods: int) -> Mapping[str, Sequence[str]]:
    """Read once: a run that others go on from is finished."""
    return written_plans(runs, methods)
