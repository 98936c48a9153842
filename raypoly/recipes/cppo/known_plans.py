"""Labelled plans of real problems for a gate: known ones, and planners' plans that the judge has labelled.

    rows = GatePlans.of(problems, outcomes, judged, config)
    rows.train, rows.held_out          # balanced, and of different problems; empty where a kind is missing

Known right plans have K of the problem's kept methods. Known wrong ones keep the plan contract, and are wrong in one
method or more (arXiv 2605.27000, appendix D):

    reworded      a kept method again, in the words of one that the judge found to be the same
    other         methods of another problem
    empty_talk    methods that fit any problem
    code          a method with a line of the problem's own solution
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from raypoly.analysis.metrics.plan_diversity import wording
from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Problem
from raypoly.recipes.cppo.gate_rows import LabelledPlan, balance
from raypoly.recipes.cppo.plan_config import PlansConfig
from raypoly.recipes.cppo.plan_contract import read_plan
from raypoly.recipes.cppo.plan_proposals import PlanOutcome, plan_of

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
_CODE_SIGNS = frozenset("([=+*<>")

_Maker = Callable[[Problem, PlanOutcome, Sequence[PlanOutcome], list[str], random.Random], list[str] | None]


@dataclass(frozen=True)
class JudgedPlan:
    problem_id: str
    plan: str
    valid: bool | None
    """Whether a gold plan could have each of its methods; None without a usable answer of the judge."""


@dataclass(frozen=True)
class GatePlans:
    judged: tuple[JudgedPlan, ...]
    train: tuple[LabelledPlan, ...] = ()
    held_out: tuple[LabelledPlan, ...] = ()
    why_none: str = ""
    """Empty where there are rows."""

    @classmethod
    def of(
        cls,
        problems: Mapping[str, Problem],
        outcomes: Sequence[PlanOutcome],
        judged: Sequence[JudgedPlan],
        config: PlansConfig,
    ) -> Self:
        """`problems`, by id: those that have outcomes or judged plans."""
        parts = []
        for held_out in (False, True):
            here = [it for it in outcomes if is_held_out(it.problem_id, config.held_out, config.seed) == held_out]
            plans = [
                plan
                for it in here
                if it.kept
                for plan in known_plans(problems[it.problem_id], it, here, config.methods, config.seed)
            ]
            plans += [
                LabelledPlan(problems[it.problem_id], it.plan, it.valid, "written")
                for it in judged
                if it.valid is not None and is_held_out(it.problem_id, config.held_out, config.seed) == held_out
            ]
            try:
                parts.append(balance(plans, config.seed))
            except UsageError:
                which = "held-out" if held_out else "other"
                said = f"the {which} problems have not both valid plans and others"
                return cls(tuple(judged), why_none=said)
        train, held = parts
        return cls(tuple(judged), train, held)

    @property
    def counts(self) -> dict[str, Any]:
        """For the data card; JSON values."""
        said = Counter({True: "valid", False: "not valid", None: "unanswered"}[it.valid] for it in self.judged)
        return {
            "train": _by_kind(self.train),
            "held_out": _by_kind(self.held_out),
            "judged": dict(sorted(said.items())),
            "why_none": self.why_none,
        }


def is_held_out(problem_id: str, share: float, seed: int) -> bool:
    """Whether a problem's plans measure a gate. It depends on no other problem: a gate that goes on learning is not
    measured on what it was trained on before."""
    return derive(seed, "gate held out", problem_id) / 2**63 < share


def _by_kind(plans: Iterable[LabelledPlan]) -> dict[str, int]:
    return dict(sorted(Counter(it.kind for it in plans).items()))


def known_plans(
    problem: Problem, outcome: PlanOutcome, others: Sequence[PlanOutcome], methods: int, seed: int
) -> list[LabelledPlan]:
    """A wrong plan of each kind, and as many right ones, if there are. `others`: problems of the methods of `other`."""
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
    """With one or all of the new methods, each in a place of its own."""
    count = rng.choice((1, len(new)))
    places = rng.sample(range(len(drawn)), count)
    found = list(drawn)
    for place, method in zip(places, new, strict=False):
        found[place] = method
    return found


_KINDS: Mapping[str, _Maker] = {"reworded": _reworded, "other": _other, "empty_talk": _empty_talk, "code": _code}
