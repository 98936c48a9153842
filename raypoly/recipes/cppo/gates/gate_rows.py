"""What a gate's model is trained on: as many valid plans as others, as rows of the scaffold `given`.

chosen = balance(plans, seed=0)
path.write_bytes(encode_rows(chosen))
read_rows(path)                                             # the same plans

A row has the question as messages, which `problems.chat_template` renders, and the word as response. Beside them it has
the plan and what its problem asks, so that a trained gate can be measured on rows too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Problem, TestSuite
from raypoly.data.formats.row_fields import error_reason
from raypoly.data.formats.row_files import rows_of
from raypoly.data.prompt_parts import STATEMENT
from raypoly.recipes.cppo.gates.gate_question import TEMPLATE, WORDS, question_prompt


@dataclass(frozen=True)
class LabelledPlan:
    """A plan, and whether it is a valid one."""

    problem: Problem
    plan: str
    """As a planner wrote it."""
    valid: bool
    kind: str = ""
    """How it came about: `gold`, a kind of wrong one, or `written` by a planner."""


def balance(plans: Iterable[LabelledPlan], seed: int) -> tuple[LabelledPlan, ...]:
    """As many valid plans as others, in their first order: of the larger kind some are left out, drawn by `seed`.

    Raises `UsageError` where a kind has none."""
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
    """The rows as JSON lines, one a plan, in the words and by the template that gates have by default."""
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
    """The plans of `encode_rows`, of problems without tests. Raises `UsageError` for the first row that is none of
    its."""
    if not file.is_file():
        raise UsageError(f"{file} is not there: `raypoly prepare` writes rows of a gate (docs/cppo.md).")
    found = []
    for number, row in rows_of(file):
        try:
            found.append(_read(row))
        except ValueError as error:
            raise UsageError(
                f"{file} row {number} is no row of a gate: {error_reason(error)}. Take rows that `raypoly prepare` "
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
    found: list[dict[str, str]] = json.loads(question_prompt(problem, plan, WORDS, TEMPLATE, json.dumps))
    return found
