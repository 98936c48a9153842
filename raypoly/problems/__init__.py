"""Problem sources: where problems come from, and how they are split."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from raypoly.config import ProblemsConfig
from raypoly.errors import UsageError
from raypoly.plugins import load
from raypoly.seeds import derive
from raypoly.values import Problem, Split

KNOWN: Mapping[str, str] = {
    "puzzles": "raypoly.problems.puzzles:load_puzzles",
    "jsonl": "raypoly.problems.jsonl:load_jsonl",
    "prepared": "raypoly.problems.prepared:load_prepared",
    "verl": "raypoly.problems.verl_rows:load_verl",
}


@dataclass(frozen=True)
class ProblemSet:
    """Problems by split; no problem is in two."""

    splits: Mapping[Split, Sequence[Problem]]
    hash: str
    """SHA-256 of all that they say, hex: the same set everywhere, or another hash."""


T = TypeVar("T")


def split(items: Sequence[T], config: ProblemsConfig, purpose: str, what: str) -> dict[Split, Sequence[T]]:
    """Items by split, shuffled by `config.seed` for this `purpose`.

    Raises `UsageError`, which calls the items `what`, where validation and test leave nothing to train on.
    """
    held_out = config.validation + config.test
    if held_out >= len(items):
        raise UsageError(
            f"problems.validation + problems.test = {held_out} leaves none of the {len(items)} {what}"
            " to train on: lower them."
        )
    shuffled = list(items)
    random.Random(derive(config.seed, purpose)).shuffle(shuffled)
    return {
        "test": shuffled[: config.test],
        "validation": shuffled[config.test : held_out],
        "train": shuffled[held_out:],
    }


def build(config: ProblemsConfig) -> ProblemSet:
    """The problems that the config names: `function(config) -> ProblemSet`, with prompts by its template."""
    problems: ProblemSet = load(config.source, KNOWN, "problems.source")(config)
    if config.template == "none":
        return problems
    from raypoly.problems.templates import templated  # which knows the sources' own prompts

    return templated(problems, config)
