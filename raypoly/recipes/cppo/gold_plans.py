"""gold_plans: plans of puzzles that are right by construction, given behind the plan prompt of `tuple`, and a share of
right solutions behind its solver prompt. Nothing is sampled (supervised training of a planner, docs/cppo.md)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pydantic import Field

from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import ATTEMPT, Draft, Problem
from raypoly.data.puzzles import find_puzzle
from raypoly.data.puzzles.puzzle_language import Puzzle
from raypoly.data.puzzles.puzzle_plans import gold_tuple, method
from raypoly.data.puzzles.puzzle_solutions import STRATEGIES, render_solution
from raypoly.recipes.cppo.tuple_prompts import plan_prompt, solver_prompt
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig


class GoldPlansConfig(ScaffoldConfig):
    methods: int = Field(4, ge=1, le=len(STRATEGIES), description="K, the methods of a plan.")
    replay: float = Field(
        0.0, ge=0, le=1, description="Share of right solutions, each behind a method of its strategy, instead of plans."
    )
    plan_template: str | None = Field(None, description="Your own prompt for plans, as for `tuple`.")


class GoldPlans(Scaffold):
    Config = GoldPlansConfig
    config: GoldPlansConfig
    samples = False

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        puzzle = puzzle_or_refuse(problem)
        return [self._given(problem, puzzle, place) for place in range(attempts)]

    def _given(self, problem: Problem, puzzle: Puzzle, place: int) -> Ask:
        rng, config = random.Random(derive("gold plans", problem.id, place)), self.config
        if rng.random() >= config.replay:
            prompt = plan_prompt(problem, config.methods, config.plan_template, self.render)
            return Ask(prompt, ATTEMPT, text=gold_tuple(puzzle, config.methods, rng))
        strategy = rng.choice(STRATEGIES)
        prompt = solver_prompt(problem, method(puzzle, strategy, rng))
        return Ask(prompt, ATTEMPT, text=render_solution(puzzle, strategy, rng))


def puzzle_or_refuse(problem: Problem) -> Puzzle:
    """The puzzle that a problem is. Raises `UsageError` for one that is none."""
    puzzle = find_puzzle(problem)
    if puzzle is None:
        raise UsageError(
            f"{problem.id} is no puzzle, and plans are known by construction for puzzles alone: give rows of your own "
            "by scaffold.name=given."
        )
    return puzzle
