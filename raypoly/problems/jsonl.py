"""Problems from files of rows in any known format, JSON lines or Parquet.

    load_jsonl(ProblemsConfig(source="jsonl", path="LeetCodeDataset-train.jsonl.gz")).splits["train"]

A row that can't be used is reported by file, line and reason, and left out; so is a problem on the exclusion list.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from raypoly.config import ProblemsConfig
from raypoly.errors import UsageError
from raypoly.problems import ProblemSet, split
from raypoly.problems.date_window import within
from raypoly.problems.formats import read_lines, read_problems
from raypoly.problems.formats.row_fields import Identifier, reason
from raypoly.values import Problem, Split

log = logging.getLogger(__name__)


class Exclusion(BaseModel):
    """A row of an exclusion list, as `raypoly score --validate` writes it."""

    problem_id: Identifier | None
    """None for a row that has no id of its own to be left out by."""
    reason: str


def _read(path: Path) -> list[Problem]:
    """The problems of a file, or of several, that can be asked; each that is left out is logged."""
    file = read_problems(path)
    for row in file.rejected:
        log.warning("%s line %d is left out: %s", row.source, row.line, row.reason)
    for problem in file.problems:
        if not problem.prompt:
            log.warning("%s: problem %s is left out: its row has no text to ask the policy with", path, problem.id)
    return [problem for problem in file.problems if problem.prompt]


def _excluded(path: Path) -> set[str]:
    """The ids on an exclusion list. Raises `UsageError` that names the line."""
    ids = set()
    for number, line in read_lines(path):
        try:
            ids.add(Exclusion.model_validate_json(line).problem_id or "")
        except ValidationError as error:
            raise UsageError(
                f"problems.exclude={str(path)!r} line {number} is no row of an exclusion list"
                f" (problem_id, reason): {reason(error)}."
            ) from None
    return ids


def without_excluded(problems: list[Problem], path: Path) -> list[Problem]:
    """The problems that the exclusion list does not name."""
    excluded = _excluded(path)
    kept = [problem for problem in problems if problem.id not in excluded]
    log.warning("%s leaves out %d of %d problems", path, len(problems) - len(kept), len(problems))
    return kept


def content_hash(splits: Mapping[Split, Sequence[Problem]]) -> str:
    """SHA-256, hex, over what the problems say, in order; where the file lies does not matter."""
    digest = hashlib.sha256()
    for name in sorted(splits):
        for p in splits[name]:
            answer = [] if p.answer == "fenced" and not p.prefix else [p.answer, p.prefix]
            digest.update(json.dumps([name, p.id, p.prompt, p.entry_point, p.tests.hash, p.prelude, *answer]).encode())
    return digest.hexdigest()


def load_jsonl(config: ProblemsConfig) -> ProblemSet:
    """The problems of `config.path` within the window, without those of `config.exclude`, split by `config.seed`.

    The order of rows in the file does not matter. Raises `UsageError` where there is no file, no usable row, an
    exclusion list that can't be read, or too few problems for validation, test and training.
    """
    if config.path is None:
        raise UsageError("problems.source=jsonl needs problems.path=FILE.")
    path = Path(config.path).expanduser()
    problems = within(_read(path), config.since, config.until)
    return set_of(problems, config, path, "jsonl split")


def set_of(problems: list[Problem], config: ProblemsConfig, path: Path, purpose: str) -> ProblemSet:
    """Those of the file `path`, without those of `config.exclude`, split by `config.seed` for this `purpose`.

    Raises `UsageError` where none is left to train on.
    """
    if config.exclude is not None:
        problems = without_excluded(problems, Path(config.exclude).expanduser())
    if not problems:
        raise UsageError(f"problems.path={str(path)!r} leaves no problem to train on; the log says why for each.")
    splits = split(sorted(problems, key=lambda p: p.id), config, purpose, f"problems of {path}")
    return ProblemSet(splits, content_hash(splits))
