"""Gold plans: a teacher proposes methods for a problem, a judge keeps those that are good, the first K are a plan.

    messages = proposal_messages(problem, 6)               # to the teacher
    proposed = read_proposals(answer, 6)
    sound = without_breaches(proposed)                      # what a program can tell without a judge
    verdicts = read_verdicts(answer, len(sound))            # the judge's, on judge_messages(problem, sound)
    kept = [method for method, why in zip(sound, faults(verdicts)) if why is None]

Stage 1 of CPPO (arXiv 2605.27000, section 4.1): a method is kept that is specific to the problem, actionable, has a
hook of its own, and gives neither code nor an answer; none is kept twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from raypoly.analysis.metrics.plan_diversity import wording
from raypoly.core.values import Problem
from raypoly.recipes.cppo.plan_contract import read_plan
from raypoly.strategies.judge.openai.judge_prompt import Message
from raypoly.strategies.judge.openai.judge_reply import InvalidAnswer, object_schema, read_reply

NOT_JUDGED = "not judged"
FAULTS = ("breach", "repeated", "not specific", "not actionable", "no hook", "code or answer", NOT_JUDGED)
"""Why a method is left out, the first that holds. `breach`: it is no single plain sentence; `not judged`: too few were
left for a plan, or the judge gave no answer."""

_TEACHER = """You write plans for programmers. Name {count} different methods to solve the problem below: different \
algorithms, not different words. Each is one sentence of at most 45 words that a programmer could follow, that speaks \
of this problem, and that names the idea which sets it apart from the others. Write no code, no steps and no answer.

Answer with JSON: {{"methods": ["...", ...]}}."""
_JUDGE = """You check methods for solving the problem below. Say of each, by its index:
- `specific`: it is about this problem, and would not fit any other;
- `actionable`: a programmer knows what to do;
- `hook`: it has a data structure, invariant or transformation of its own;
- `code_or_answer`: it shows a piece of program, or the result itself;
- `same_as`: the index of an earlier method that is the same algorithm in other words, else 0.

Answer with JSON: {{"methods": [{{"index": 1, "specific": true, "actionable": true, "hook": true, "code_or_answer": \
false, "same_as": 0}}, ...]}}, one entry for each of the {count} methods."""


class _Proposals(BaseModel):
    model_config = ConfigDict(strict=True)
    methods: list[str]


class MethodVerdict(BaseModel):
    model_config = ConfigDict(strict=True)
    index: Annotated[int, Field(ge=1)]
    specific: bool
    actionable: bool
    hook: bool
    code_or_answer: bool
    same_as: Annotated[int, Field(ge=0)] = 0


class _Verdicts(BaseModel):
    model_config = ConfigDict(strict=True)
    methods: list[MethodVerdict]


PROPOSALS_SCHEMA = object_schema(methods={"type": "array", "items": {"type": "string"}})
VERDICTS_SCHEMA = object_schema(
    methods={
        "type": "array",
        "items": object_schema(
            index={"type": "integer"},
            **{name: {"type": "boolean"} for name in ("specific", "actionable", "hook", "code_or_answer")},
            same_as={"type": "integer"},
        ),
    }
)


def proposal_messages(problem: Problem, count: int) -> list[Message]:
    """To the teacher, who sees the problem's prompt alone: no test and no solution."""
    return [
        {"role": "system", "content": _TEACHER.format(count=count)},
        {"role": "user", "content": problem.prompt},
    ]


def judge_messages(problem: Problem, methods: Sequence[str]) -> list[Message]:
    listed = "\n".join(f"{number}. {method}" for number, method in enumerate(methods, start=1))
    return [
        {"role": "system", "content": _JUDGE.format(count=len(methods))},
        {"role": "user", "content": f"{problem.prompt}\n\nMethods:\n{listed}"},
    ]


def read_proposals(text: str, count: int) -> list[str]:
    """The first `count` methods of the teacher's answer, each on one line. Raises `InvalidAnswer`."""
    found = [" ".join(method.split()) for method in read_reply(text, _Proposals).methods]
    if not found:
        raise InvalidAnswer("it has no methods")
    return found[:count]


def read_verdicts(text: str, count: int) -> list[MethodVerdict]:
    """One for each method, in order. Raises `InvalidAnswer`."""
    given = read_reply(text, _Verdicts).methods
    by_index = {verdict.index: verdict for verdict in given}
    if len(given) != count or set(by_index) != set(range(1, count + 1)):
        raise InvalidAnswer(f"it has entries {sorted(by_index)}, one each of 1 to {count} is needed")
    if late := [index for index, verdict in by_index.items() if verdict.same_as >= index]:
        raise InvalidAnswer(f"method {late[0]} can only be the same as an earlier one")
    return [by_index[index] for index in sorted(by_index)]


def without_breaches(methods: Sequence[str]) -> tuple[list[str], Counter[str]]:
    """The methods that keep the plan contract, each once, and how many were left out by which of `FAULTS`."""
    kept: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for method in methods:
        if not read_plan(f"A: {method}", 1).keeps:
            left_out["breach"] += 1
        elif wording(method) in kept:
            left_out["repeated"] += 1
        else:
            kept[wording(method)] = method
    return list(kept.values()), left_out


def faults(verdicts: Sequence[MethodVerdict]) -> list[str | None]:
    """Why each method is left out; None for one that is kept. A repetition of one that is left out is kept itself."""
    found: list[str | None] = []
    for verdict in verdicts:
        by_judge = (
            (_kept(found, verdicts, verdict.same_as) > 0, "repeated"),
            (not verdict.specific, "not specific"),
            (not verdict.actionable, "not actionable"),
            (not verdict.hook, "no hook"),
            (verdict.code_or_answer, "code or answer"),
        )
        found.append(next((why for holds, why in by_judge if holds), None))
    return found


def rewordings(methods: Sequence[str], verdicts: Sequence[MethodVerdict]) -> Iterator[tuple[str, str]]:
    """Each method that repeats a kept one in other words, and that one."""
    found = faults(verdicts)
    for method, verdict, fault in zip(methods, verdicts, found, strict=True):
        if fault == "repeated":
            yield method, methods[_kept(found, verdicts, verdict.same_as) - 1]


def _kept(found: Sequence[str | None], verdicts: Sequence[MethodVerdict], index: int) -> int:
    """The index, from 1, of the kept method among this one and those that it repeats in turn; 0 for none."""
    while index and found[index - 1] is not None:
        index = verdicts[index - 1].same_as
    return index


@dataclass(frozen=True)
class PlanOutcome:
    problem_id: str
    prompt: str
    """For a plan, as `tuple` asks it."""
    proposed: int = 0
    kept: tuple[str, ...] = ()
    reworded: tuple[tuple[str, str], ...] = ()
    """Methods that say a kept one in other words, each with that one."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """By the first of `FAULTS` that held."""
    unanswered: str = ""
    """Who gave no usable answer, and how: `teacher refused`, `judge unreadable` ..."""


def gold_plan(outcome: PlanOutcome, methods: int) -> str | None:
    """The first K kept methods as a plan; None where fewer are left."""
    if len(outcome.kept) < methods:
        return None
    return plan_of(outcome.kept[:methods])


def plan_of(methods: Sequence[str]) -> str:
    return "".join(f"{label}: {text}\n" for label, text in zip(ascii_uppercase, methods, strict=False))


def encode_plans(outcomes: Sequence[PlanOutcome], methods: int) -> bytes:
    """The gold plans as rows of the scaffold `given`, with all kept `methods`; JSON lines."""
    rows = (
        {"problem": it.problem_id, "prompt": it.prompt, "response": plan, "methods": it.kept}
        for it in outcomes
        if (plan := gold_plan(it, methods)) is not None
    )
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def funnel(outcomes: Sequence[PlanOutcome], methods: int) -> dict[str, Any]:
    """The counts from the first question to the gold plans; JSON values."""
    left_out: Counter[str] = Counter()
    for outcome in outcomes:
        left_out.update(outcome.left_out)
    whole = sum(gold_plan(outcome, methods) is not None for outcome in outcomes)
    unanswered = Counter(outcome.unanswered for outcome in outcomes if outcome.unanswered)
    return {
        "problems": len(outcomes),
        "unanswered": dict(sorted(unanswered.items())),
        "proposed": sum(outcome.proposed for outcome in outcomes),
        "left_out": {name: left_out[name] for name in FAULTS},
        "kept": sum(len(outcome.kept) for outcome in outcomes),
        "too_few": len(outcomes) - whole - unanswered.total(),
        "plans": whole,
    }
