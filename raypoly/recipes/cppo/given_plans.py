"""Plans of puzzles that are known by construction, given and not sampled (docs/cppo.md).

`gold_plans` gives right ones after the plan prompt of `tuple`, and a share of right solutions after its solver prompt:
supervised training of a planner. `labelled_plans` gives right and wrong ones, as many of each, with the word that a
gate should say: training of a gate. The wrong ones keep the plan contract.

    gold_tuple(puzzle, 4, rng)                # "A: fold over even numbers below n\\nB: for loop over even numbers ..."
    wrong_tuple(puzzle, "reworded", rng)      # the same strategy twice, in two wordings
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from string import ascii_uppercase

from pydantic import Field

from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import ATTEMPT, Draft, Problem
from raypoly.data.puzzles import find_puzzle
from raypoly.data.puzzles.puzzle_language import Puzzle, all_puzzles, method, numbers, wordings
from raypoly.data.puzzles.puzzle_solutions import STRATEGIES, render_solution
from raypoly.recipes.cppo.gate_question import COMPLETION_TEMPLATE, WORDS, question_prompt
from raypoly.recipes.cppo.gate_rows import LabelledPlan, written_plans
from raypoly.recipes.cppo.plan_contract import read_plan
from raypoly.recipes.cppo.tuple_plans import plan_prompt, solver_prompt
from raypoly.rollouts.scaffolds.scaffold import Ask, Scaffold, ScaffoldConfig

# Begins of methods that say nothing.
_TALK = ("look with care at", "think well about", "be clever about", "use the best way for", "do all of", "try hard on")
# Strategies whose last line is one expression with the whole solution, which the contract does not take for code.
_IN_ONE_LINE = ("comprehension", "recursion")


class GoldPlansConfig(ScaffoldConfig):
    methods: int = Field(4, ge=1, le=len(STRATEGIES), description="K, the methods of a plan.")
    replay: float = Field(
        0.0, ge=0, le=1, description="Share of right solutions, each after a method of its strategy, instead of plans."
    )
    plan_template: str | None = Field(None, description="Your own prompt for plans, as for `tuple`.")


class GoldPlans(Scaffold):
    Config = GoldPlansConfig
    config: GoldPlansConfig
    samples = False

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> Sequence[Ask]:
        puzzle = _puzzle(problem)
        return [self._given(problem, puzzle, place) for place in range(attempts)]

    def _given(self, problem: Problem, puzzle: Puzzle, place: int) -> Ask:
        rng, config = random.Random(derive("gold plans", problem.id, place)), self.config
        if rng.random() >= config.replay:
            prompt = plan_prompt(problem, config.methods, config.plan_template, self.render)
            return Ask(prompt, ATTEMPT, text=gold_tuple(puzzle, config.methods, rng))
        strategy = rng.choice(STRATEGIES)
        prompt = solver_prompt(problem, method(puzzle, strategy, rng))
        return Ask(prompt, ATTEMPT, text=render_solution(puzzle, strategy, rng))


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
                question_prompt(problem, it.plan, COMPLETION_TEMPLATE, self.render),
                ATTEMPT,
                text=accept if it.valid else refuse,
            )
            for it in self.labelled(problem, attempts)
        ]

    def labelled(self, problem: Problem, count: int) -> list[LabelledPlan]:
        """Valid and wrong plans for the problem by turns, as are the kinds of wrong ones; plans of `plans_of` first.

        Raises `UsageError` for a problem that is no puzzle.
        """
        puzzle, methods = _puzzle(problem), self.config.methods
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
        """The newest plans of `plans_of` for the problem, at most so many valid ones and so many others."""
        methods, puzzle = self.config.methods, _puzzle(problem)
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
    # once: a run that others go on from is finished
    return written_plans(runs, methods)


def _puzzle(problem: Problem) -> Puzzle:
    puzzle = find_puzzle(problem)
    if puzzle is None:
        raise UsageError(
            f"{problem.id} is no puzzle, and plans are known by construction for puzzles alone: give rows of your own "
            "by scaffold.name=given."
        )
    return puzzle


def gold_tuple(puzzle: Puzzle, methods: int, rng: random.Random) -> str:
    """K `methods` of different strategies, in any order. Raises `ValueError` above six."""
    return _labelled([method(puzzle, strategy, rng) for strategy in rng.sample(STRATEGIES, methods)])


def wrong_tuple(puzzle: Puzzle, kind: str, rng: random.Random, methods: int = 4) -> str:
    """K `methods`, 2 to 6, some of them wrong. `kind`:

    - `reworded`: a strategy twice, in two wordings.
    - `other`: one method, or all, of another puzzle; every second time of one that differs in one part alone.
    - `empty_talk`: one method, or all, that names no strategy.
    - `code`: a method with the code of its solution.
    """
    return _labelled(_KINDS[kind](puzzle, methods, rng))


def is_gold(puzzle: Puzzle, methods: Sequence[str | None]) -> bool:
    """Whether these are methods of the puzzle, of different strategies."""
    named = {strategy for strategy in STRATEGIES for said in methods if said in wordings(puzzle, strategy)}
    return len(named) == len(methods)


def _labelled(methods: Sequence[str]) -> str:
    return "\n".join(f"{label}: {said}" for label, said in zip(ascii_uppercase, methods, strict=False))


def _reworded(puzzle: Puzzle, methods: int, rng: random.Random) -> list[str]:
    again, *others = rng.sample(STRATEGIES, methods - 1)
    found = rng.sample(wordings(puzzle, again), 2) + [method(puzzle, strategy, rng) for strategy in others]
    rng.shuffle(found)
    return found


def _other(puzzle: Puzzle, methods: int, rng: random.Random) -> list[str]:
    others = _near(puzzle) if rng.random() < 0.5 else [it for it in _PUZZLES if numbers(it) != numbers(puzzle)]
    rival = rng.choice(others)
    changed = _changed(methods, rng)
    drawn = enumerate(rng.sample(STRATEGIES, methods))
    return [method(rival if place in changed else puzzle, strategy, rng) for place, strategy in drawn]


def _near(puzzle: Puzzle) -> list[Puzzle]:
    # The puzzles over other numbers that differ in one part alone: a gate that never sees them is soon fooled.
    own = (puzzle.source, puzzle.filter, puzzle.map)
    parts = [(it, (it.source, it.filter, it.map)) for it in _PUZZLES if it.aggregate == puzzle.aggregate]
    return [it for it, its in parts if sum(one is not two for one, two in zip(own, its, strict=True)) == 1]


def _empty_talk(puzzle: Puzzle, methods: int, rng: random.Random) -> list[str]:
    changed, talk = _changed(methods, rng), rng.sample(_TALK, methods)
    drawn = enumerate(rng.sample(STRATEGIES, methods))
    return [
        f"{talk[place]} {numbers(puzzle)}" if place in changed else method(puzzle, strategy, rng)
        for place, strategy in drawn
    ]


def _code(puzzle: Puzzle, methods: int, rng: random.Random) -> list[str]:
    coded = rng.choice(_IN_ONE_LINE)
    expression = render_solution(puzzle, coded, rng).strip().rpartition("return ")[2]
    found = [method(puzzle, it, rng) for it in rng.sample([it for it in STRATEGIES if it != coded], methods - 1)]
    found.insert(rng.randrange(methods), f"{method(puzzle, coded, rng)}, {expression}")
    return found


def _changed(methods: int, rng: random.Random) -> set[int]:
    # The places of the methods that are wrong: one or all.
    return {rng.randrange(methods)} if rng.random() < 0.5 else set(range(methods))


_KINDS: Mapping[str, Callable[[Puzzle, int, random.Random], list[str]]] = {
    "reworded": _reworded,
    "other": _other,
    "empty_talk": _empty_talk,
    "code": _code,
}
KINDS = tuple(_KINDS)
_PUZZLES = all_puzzles()
