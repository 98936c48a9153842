"""Problems by split: splitting, exclusion, content hash."""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.seeds import derive
from raypoly.core.values import Problem, Split
from raypoly.data.formats.row_fields import Identifier, error_reason
from raypoly.data.formats.row_files import read_lines
from raypoly.data.public_tests import public_digest

log = logging.getLogger(__name__)

T = TypeVar("T")
_ORDER: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class ProblemSet:
    """Problems by split; no problem is in two."""

    splits: Mapping[Split, Sequence[Problem]]
    hash: str
    """SHA-256, hex, of everything that the problems say: the same on every machine."""
    source: str | None = None
    """The hash of the set of `problems.source`, where a scaffold brings other problems to train on."""


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
        fewer = " ".join(f"problems.{name}={min(getattr(config, name), len(items) // 4)}" for name in _ORDER[1:])
        raise UsageError(
            f"problems.validation + problems.test = {config.validation} + {config.test} leaves none of the "
            f"{len(items)} {what} to train on: set {fewer}."
        )
    shuffled = list(items)
    random.Random(derive(config.seed, purpose)).shuffle(shuffled)
    return {
        "test": shuffled[: config.test],
        "validation": shuffled[config.test : held_out],
        "train": shuffled[held_out:],
    }


def problem_set_of(
    read: Callable[[str], list[Problem]],
    config: ProblemsConfig,
    purpose: str,
    take: Callable[[list[Problem]], list[Problem]] = list,
    place: str | None = None,
    numbered: bool = False,
) -> ProblemSet:
    """The problems of `place` (default `config.path`) that `take` keeps, split by seed for this `purpose`.

    A split with a place of its own is that place's. `numbered`: ids may be numbers that start anew in each place
    (`told_apart`). The order of problems does not matter. Raises `UsageError` where none is left to train on, or one is
    in two splits.

    """
    kept = _kept(take(read(place or config.path or "")), config)
    if not kept:
        raise UsageError(f"problems.path={config.path!r} leaves no problem to train on; the log says why for each.")
    names: tuple[Split, ...] = ("validation", "test")
    places = {name: _place(config, name) for name in names}
    own = {name: _kept(read(own_place), config) for name, own_place in places.items() if own_place}
    rest = config.model_copy(update=dict.fromkeys(own, 0))
    splits = {**split_by_seed(kept, rest, purpose, f"problems of {config.path}"), **own}
    if own:
        splits = told_apart(splits) if numbered else splits
        check_apart(splits, "take it out of one of the two places, or give it another id there")
    return ProblemSet(splits, content_hash(splits))


def _place(config: ProblemsConfig, split: Split) -> str | None:
    return {
        "validation": config.validation_path or config.validation_split,
        "test": config.test_path or config.test_split,
    }.get(split)


def _kept(problems: list[Problem], config: ProblemsConfig) -> list[Problem]:
    if config.exclude is not None:
        problems = without_excluded(problems, Path(config.exclude).expanduser())
    return sorted(problems, key=lambda p: p.id)


def told_apart(splits: Mapping[Split, Sequence[Problem]]) -> dict[Split, Sequence[Problem]]:
    """The splits, where two data sets number their problems alike: an id that another problem has in an earlier split
    (training, then validation) becomes `test/4000`. The same problem in two splits keeps its id in both."""
    taken: dict[str, Problem] = {}
    found: dict[Split, Sequence[Problem]] = {}
    for name in _ORDER:
        found[name] = [
            replace(problem, id=f"{name}/{problem.id}")
            if (other := taken.get(problem.id)) is not None and not _is_same(problem, other)
            else problem
            for problem in splits[name]
        ]
        taken |= {problem.id: problem for problem in found[name]}
    return found


def _is_same(one: Problem, other: Problem) -> bool:
    return (one.prompt, one.tests.hash) == (other.prompt, other.tests.hash)


def check_apart(splits: Mapping[Split, Sequence[Problem]], what_to_do: str) -> None:
    where: dict[str, Split] = {}
    for name in _ORDER:
        for problem in splits[name]:
            if problem.id in where:
                raise UsageError(f"{problem.id} is in {where[problem.id]} and in {name}: {what_to_do}.")
            where[problem.id] = name


def describe_splits(problems: ProblemSet, config: ProblemsConfig) -> str:
    """`200 (jsonl, content 0c5f...): 72 to train on, 64 for validation, 64 for test`, and what sets these numbers."""
    sizes = {name: len(members) for name, members in problems.splits.items()}
    splits: tuple[Split, ...] = ("validation", "test")
    counted = [name for name in splits if sizes.get(name) == getattr(config, name) and not _place(config, name)]
    by = " and ".join(f"problems.{name}" for name in counted) if config.source != "prepared" else ""
    return (
        f"{sum(sizes.values())} ({config.source}, content {problems.hash[:12]}): {sizes.get('train', 0)} to train on, "
        f"{sizes.get('validation', 0)} for validation, {sizes.get('test', 0)} for test"
        + (f" (held out by {by})" if by else "")
    )


def content_hash(splits: Mapping[Split, Sequence[Problem]]) -> str:
    """SHA-256, hex, over what the problems say, in order, without paths and public tests that are the first ones."""
    digest = hashlib.sha256()
    for name in sorted(splits):
        for p in splits[name]:
            answer = [] if p.answer == "fenced" and not p.prefix else [p.answer, p.prefix]
            parts = [name, p.id, p.prompt, p.entry_point, p.tests.hash, p.prelude, *answer, *public_digest(p)]
            digest.update(json.dumps(parts).encode())
    return digest.hexdigest()


def without_excluded(problems: Sequence[Problem], path: Path) -> list[Problem]:
    """Logs how many the list in `path` leaves out. Raises `UsageError` that names its bad line."""
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


def with_tests(problems: Sequence[Problem]) -> list[Problem]:
    """The problems whose answers can be judged."""
    return [problem for problem in problems if problem.tests.kind != "none"]


def count_measured(problem_set: ProblemSet, reward: str) -> dict[str, int]:
    """By split, the problems that an evaluation could measure: with tests, or by a `reward` of one's own."""
    own = ":" in reward
    return {name: len(split if own else with_tests(split)) for name, split in problem_set.splits.items()}
