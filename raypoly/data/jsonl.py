"""Problems from files of rows in any known format, JSON lines or Parquet.

    load_jsonl(ProblemsConfig(source="jsonl", path="LeetCodeDataset-train.jsonl.gz")).splits["train"]

Left out, with a line in the log: rows that can't be used, problems on the exclusion list, and those whose
`metadata["date"]` lies outside `problems.since` to `problems.until`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem
from raypoly.data.formats import read_problems
from raypoly.data.problem_set import ProblemSet, problem_set_of

log = logging.getLogger(__name__)
SPLIT = "jsonl split"
"""The purpose of the split's seed."""


def load_jsonl(config: ProblemsConfig) -> ProblemSet:
    """The problems of `config.path`, split by `config.seed`; `validation_path` and `test_path` ignore the window.

    Raises `UsageError` where there is no file, no usable row, an exclusion list that can't be read, or too few
    problems.

    """
    if config.path is None:
        raise UsageError("problems.source=jsonl needs problems.path=FILE.")
    return problem_set_of(
        lambda place: read_askable(Path(place).expanduser()),
        config,
        SPLIT,
        lambda problems: in_window(problems, config.since, config.until),
    )


def read_askable(path: Path, files: Sequence[Path] | None = None) -> list[Problem]:
    """The problems of `path`, or of its `files` where they are known, that have a prompt. Logs what is left out."""
    file = read_problems(path, files)
    for row in file.rejected:
        log.warning("%s line %d is left out: %s", row.source, row.line, row.reason)
    if empty := [problem.id for problem in file.problems if not problem.prompt]:
        said = "%s: %d of %d problems are left out, whose rows have no text to ask the policy with, such as %s"
        log.warning(said, path, len(empty), len(file.problems), empty[0])
    return [problem for problem in file.problems if problem.prompt]


def outside_window(day: str | None, since: str | None, until: str | None) -> str:
    """Why a day lies outside `since` to `until` (`YYYY-MM-DD`, included); empty where it lies inside.

    Where there is a bound, an unknown day is outside.
    """
    if since is None and until is None:
        return ""
    if not day:
        return "its row names no day, and a window was asked for"
    if since is not None and day < since:
        return f"it is of {day}, before {since}"
    if until is not None and day > until:
        return f"it is of {day}, after {until}"
    return ""


def in_window(problems: list[Problem], since: str | None, until: str | None) -> list[Problem]:
    if since is None and until is None:
        return problems
    kept = [problem for problem in problems if not outside_window(problem.metadata.get("date"), since, until)]
    log.warning(
        "problems.since and problems.until leave out %d of %d problems, %d of them without a date",
        len(problems) - len(kept),
        len(problems),
        sum(not problem.metadata.get("date") for problem in problems),
    )
    return kept
