"""Labelled plans that train a gate's model, as rows of the scaffold `given`, and plans that planners wrote.

chosen = balance(plans, seed=0)
path.write_bytes(encode_rows(chosen))
read_rows(path)                                             # the same plans
written_plans(["out/joint-s0"], methods=4)                  # {"p3": ["A: ...\\nB: ...", ...]}, the newest last

A row has the question as messages and the word as response; also plan and problem, so that rows can measure a gate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from raypoly.core.errors import CorruptData, StorageError, UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.row_fields import error_reason
from raypoly.data.formats.row_files import rows_of
from raypoly.data.prompt_parts import STATEMENT
from raypoly.recipes.cppo.gate_question import TEMPLATE, WORDS, question_prompt
from raypoly.recipes.cppo.plan_contract import read_plan
from raypoly.run.run_files import RunFiles
from raypoly.verifier.response_text import answered

_COLUMNS = ("problem_id", "text", "finish_reason")


@dataclass(frozen=True)
class LabelledPlan:
    problem: Problem
    plan: str
    valid: bool
    kind: str = ""
    """`gold`, a kind of wrong one, or `written` by a planner."""


def balance(plans: Iterable[LabelledPlan], seed: int) -> tuple[LabelledPlan, ...]:
    """As many valid plans as others, in their order: `seed` draws which of the larger kind stay.

    Raises `UsageError` where a kind has none.
    """
    given = list(plans)
    places = {kind: [i for i, each in enumerate(given) if each.valid is kind] for kind in (True, False)}
    count = min(map(len, places.values()))
    if not count:
        raise UsageError(
            f"A gate is trained on valid and invalid plans, and there are {len(places[True])} valid ones and "
            f"{len(places[False])} others: label some of both."
        )
    draw = np.random.default_rng(derive(seed, "gate rows"))
    kept = sorted(int(i) for kind in (True, False) for i in draw.permutation(places[kind])[:count])
    return tuple(given[i] for i in kept)


class _Row(BaseModel):
    problem_id: str
    asked: str
    statement: str | None = None
    plan: str
    kind: str = ""
    prompt: list[dict[str, str]]
    response: Literal["pass", "fail"]


def encode_rows(plans: Iterable[LabelledPlan]) -> bytes:
    """JSON lines, one a plan, in the words and by the template that gates have by default."""
    rows = [
        _Row(
            problem_id=it.problem.id,
            asked=it.problem.prompt,
            statement=it.problem.metadata.get(STATEMENT),
            plan=it.plan,
            kind=it.kind,
            prompt=_messages(it.problem, it.plan),
            response="pass" if it.valid else "fail",
        )
        for it in plans
    ]
    return "".join(f"{json.dumps(row.model_dump(), ensure_ascii=False)}\n" for row in rows).encode()


def read_rows(file: Path) -> list[LabelledPlan]:
    """The plans of `encode_rows`, of problems without tests. Raises `UsageError` for the first other row."""
    if not file.is_file():
        raise UsageError(f"{file} is not there: `raypoly make-plans` writes rows of a gate (docs/cppo.md).")
    found = []
    for number, row in rows_of(file):
        try:
            found.append(_read(row))
        except ValueError as error:
            raise UsageError(
                f"{file} row {number} is no row of a gate: {error_reason(error)}. Take rows that `raypoly make-plans` "
                "wrote (docs/cppo.md)."
            ) from error
    return found


def _read(row: Any) -> LabelledPlan:
    if isinstance(row, ValueError):
        raise row
    it = _Row.model_validate(row)
    metadata = {} if it.statement is None else {STATEMENT: it.statement}
    problem = Problem(it.problem_id, it.asked, "", TestSuite("none", ""), metadata=metadata)
    if it.prompt != _messages(problem, it.plan):
        raise ValueError("its prompt is not the question about its plan")
    return LabelledPlan(problem, it.plan, it.response == WORDS[0], it.kind)


def _messages(problem: Problem, plan: str) -> list[dict[str, str]]:
    """The question, before any chat template."""
    found: list[dict[str, str]] = json.loads(question_prompt(problem, plan, TEMPLATE, json.dumps))
    return found


def written_plans(runs: Sequence[str], methods: int) -> Mapping[str, Sequence[str]]:
    """The different plans in the steps of these runs, by problem id, the newest last, without those that breach the
    contract of K `methods`: no gate is asked about them. `runs`: folders or URIs.

    Raises `UsageError` for one that is no run, that can't be read, or that has no plans.
    """
    found: dict[str, dict[str, None]] = {}
    for place in runs:
        tables = list(_plans_by_step(place))
        if not tables:
            raise UsageError(f"{place} has no plans: name a run that has trained a planner (scaffold.name=tuple).")
        for table in tables:
            for problem, text, end in zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True):
                if read_plan(text, methods, cut=end == "length").keeps:
                    known, plan = found.setdefault(problem, {}), answered(text).lstrip()
                    known.pop(plan, None)  # a plan is as new as its last repetition
                    known[plan] = None
    return {problem: list(plans) for problem, plans in found.items()}


def _plans_by_step(place: str) -> Iterator[pa.Table]:
    run = RunFiles(place)
    try:
        for step in run.steps:
            drafts = run.drafts(step)
            if drafts.num_rows and (plans := drafts.filter(pc.equal(drafts["role"], "plan"))).num_rows:
                yield plans.select(_COLUMNS)
    except (CorruptData, StorageError) as error:
        raise UsageError(f"The plans of {place} can't be read: {error}") from error
