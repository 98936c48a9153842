"""A set of problems by split: how it is split, what is excluded from it, and its hash."""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from raypoly.config import ProblemsConfig
from raypoly.errors import UsageError
from raypoly.problems.formats.row_fields import Identifier, error_reason
from raypoly.problems.formats.row_files import read_lines
from raypoly.seeds import derive
from raypoly.values import Problem, Split

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class ProblemSet:
    """Problems by split; no problem is in two."""

    splits: Mapping[Split, Sequence[Problem]]
    hash: str
    """SHA-256 of everything that the problems say, hex. Equal sets have equal hashes on every machine."""


class Exclusion(BaseModel):
    """A row of an exclusion list, as `raypoly score --validate` writes it."""

    problem_id: Identifier | None
    """None for a row that has no id of its own to be left out by."""
    reason: str


def split_by_seed(items: Sequence[T], config: ProblemsConfig, purpose: str, what: str) -> dict[Split, Sequence[T]]:
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


def problem_set_of(problems: list[Problem], config: ProblemsConfig, path: Path, purpose: str) -> ProblemSet:
    """The set of the problems that the file `path` holds, less `config.exclude`, split by seed for this `purpose`.

    The order of `problems` does not matter. Raises `UsageError` where none is left to train on.
    """
    if config.exclude is not None:
        problems = without_excluded(problems, Path(config.exclude).expanduser())
    if not problems:
        raise UsageError(f"problems.path={str(path)!r} leaves no problem to train on; the log says why for each.")
    splits = split_by_seed(sorted(problems, key=lambda p: p.id), config, purpose, f"problems of {path}")
    return ProblemSet(splits, content_hash(splits))


def content_hash(splits: Mapping[Split, Sequence[Problem]]) -> str:
    """SHA-256, hex, over what the problems say, in order. The path of their file is not part of it."""
    digest = hashlib.sha256()
    for name in sorted(splits):
        for p in splits[name]:
            answer = [] if p.answer == "fenced" and not p.prefix else [p.answer, p.prefix]
            digest.update(json.dumps([name, p.id, p.prompt, p.entry_point, p.tests.hash, p.prelude, *answer]).encode())
    return digest.hexdigest()


def without_excluded(problems: list[Problem], path: Path) -> list[Problem]:
    """The problems that the exclusion list in `path` does not name. Logs how many it leaves out.

    Raises `UsageError` that names the list's bad line.
    """
    excluded = set()
    for number, line in read_lines(path):
        try:
            excluded.add(Exclusion.model_validate_json(line).problem_id or "")
        except ValidationError as error:
            raise UsageError(
                f"problems.exclude={str(path)!r} line {number} is no row of an exclusion list"
                f" (problem_id, reason): {error_reason(error)}."
            ) from None
    kept = [problem for problem in problems if problem.id not in excluded]
    log.warning("%s leaves out %d of %d problems", path, len(problems) - len(kept), len(problems))
    return kept
