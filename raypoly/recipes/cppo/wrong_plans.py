"""Plans that are known to be right or wrong without a further question, from what became of each problem.

    plans = known_plans(problem, outcome, others, methods=4, seed=0)

Right ones have K of the problem's kept methods. Wrong ones keep the plan contract, and are wrong in one method or more
(arXiv 2605.27000, appendix D):

    reworded      a kept method again, in the words of one that the judge found to be the same
    other         methods of another problem
    empty_talk    methods that fit any problem
    code          a method with a line of the problem's own solution
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from raypoly.core.seeds import derive
from raypoly.core.values import Problem
from raypoly.recipes.cppo.gates.gate_rows import LabelledPlan
from raypoly.recipes.cppo.plan_proposals import PlanOutcome, plan_of
from raypoly.rollouts.scaffolds.plan_contract import read_plan, wording

_TALK = (
    "Use an efficient algorithm that is fast enough for the limits",
    "Think about the problem with care and handle all edge cases",
    "Choose a data structure that suits the input",
    "Try a clever approach that avoids needless work",
    "Break the problem into smaller parts and solve each of them",
    "Find a pattern in the examples and make use of it",
    "Write clean code and test it on the given examples",
    "Start with a simple solution and make it faster later",
)
_LEAST_CODE = 8
"""Letters of a line of code, at least."""
_CODE_SIGNS = frozenset("([=+*<>")

_Maker = Callable[[Problem, PlanOutcome, Sequence[PlanOutcome], list[str], random.Random], list[str] | None]


def known_plans(
    problem: Problem, outcome: PlanOutcome, others: Sequence[PlanOutcome], methods: int, seed: int
) -> list[LabelledPlan]:
    """A wrong plan of each kind that can be made of this problem, and as many right ones, if there are. Nothing for a
    problem with fewer than K = `methods` kept methods. `others`: of which methods are taken for `other`."""
    if len(outcome.kept) < methods:
        return []
    rng = random.Random(derive(seed, "known plans", problem.id))
    wrong = []
    for kind, make in _KINDS.items():
        said = make(problem, outcome, others, rng.sample(outcome.kept, methods), rng)
        if said is not None and read_plan(plan := plan_of(said), methods).keeps:
            wrong.append(LabelledPlan(problem, plan, False, kind))
    right = {plan_of(outcome.kept[:methods]): None}
    for _ in range(4 * len(wrong)):  # so often, since two draws may be the same
        if len(right) < len(wrong):
            right[plan_of(rng.sample(outcome.kept, methods))] = None
    return [*(LabelledPlan(problem, plan, True, "gold") for plan in right), *wrong]


def _reworded(
    problem: Problem, outcome: PlanOutcome, others: Sequence[PlanOutcome], drawn: list[str], rng: random.Random
) -> list[str] | None:
    if not outcome.reworded or len(drawn) < 2:
        return None
    again, first = rng.choice(outcome.reworded)
    rest = [method for method in drawn if method != first]
    found = [first, again, *rest][: len(drawn)]
    rng.shuffle(found)
    return found


def _other(
    problem: Problem, outcome: PlanOutcome, others: Sequence[PlanOutcome], drawn: list[str], rng: random.Random
) -> list[str] | None:
    own = set(map(wording, outcome.kept))
    rivals = [
        it.kept
        for it in others
        if len(it.kept) >= len(drawn) and it.problem_id != problem.id and own.isdisjoint(map(wording, it.kept))
    ]
    return _replaced(drawn, rng.sample(rng.choice(rivals), len(drawn)), rng) if rivals else None


def _empty_talk(
    problem: Problem, outcome: PlanOutcome, others: Sequence[PlanOutcome], drawn: list[str], rng: random.Random
) -> list[str] | None:
    return _replaced(drawn, rng.sample(_TALK, min(len(drawn), len(_TALK))), rng)


def _code(
    problem: Problem, outcome: PlanOutcome, others: Sequence[PlanOutcome], drawn: list[str], rng: random.Random
) -> list[str] | None:
    stripped = (line.strip() for line in problem.solution.splitlines())
    lines = [line for line in stripped if len(line) >= _LEAST_CODE and _CODE_SIGNS & set(line)]
    rng.shuffle(lines)
    place = rng.randrange(len(drawn))
    for line in lines:
        found = [*drawn[:place], f"{drawn[place].rstrip(' .')}: {line}", *drawn[place + 1 :]]
        if read_plan(plan_of(found), len(drawn)).keeps:
            return found
    return None


def _replaced(drawn: list[str], new: Sequence[str], rng: random.Random) -> list[str]:
    """With one new method or all of them, each in a place of its own."""
    count = rng.choice((1, len(new)))
    places = rng.sample(range(len(drawn)), count)
    found = list(drawn)
    for place, method in zip(places, new, strict=False):
        found[place] = method
    return found


_KINDS: Mapping[str, _Maker] = {"reworded": _reworded, "other": _other, "empty_talk": _empty_talk, "code": _code}
