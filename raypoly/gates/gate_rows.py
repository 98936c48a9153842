"""What a gate's model is trained on: as many valid plans as others, as rows of the program `given`.

chosen = balance(plans, seed=0)                             # chosen.dropped: how many were too many of a kind
sha256 = write_rows(path, chosen.plans, GateQuestion.of(tokenizer))
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raypoly.errors import UsageError
from raypoly.gates.gate_question import GateQuestion
from raypoly.seeds import derive
from raypoly.values import Problem


@dataclass(frozen=True)
class LabelledPlan:
    """A plan, and whether it is a valid one."""

    problem: Problem
    plan: str
    """As a planner wrote it."""
    valid: bool


@dataclass(frozen=True)
class BalancedPlans:
    """As many valid plans as others, in their first order."""

    plans: tuple[LabelledPlan, ...]
    dropped: int
    """Plans of the larger kind that were left out."""


def balance(plans: Iterable[LabelledPlan], seed: int) -> BalancedPlans:
    """Leave out plans of the larger kind, drawn by `seed`. Raises `UsageError` where a kind has none."""
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
    return BalancedPlans(tuple(given[i] for i in kept), len(given) - 2 * count)


def write_rows(path: Path, plans: Sequence[LabelledPlan], question: GateQuestion) -> str:
    """Write the rows as JSON lines, a response a row: the word. Returns SHA-256 of the file, hex."""
    accept, refuse = question.words
    lines = [
        json.dumps({"prompt": question.prompt(it.problem, it.plan), "response": accept if it.valid else refuse})
        for it in plans
    ]
    content = "".join(f"{line}\n" for line in lines).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()
