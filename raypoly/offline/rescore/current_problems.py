"""The problems of a run as they are today, and what is told where they are not what they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from raypoly import problems
from raypoly.errors import UsageError
from raypoly.problems.formats import read_problems
from raypoly.run import Run
from raypoly.scoring.score_programs import by_id
from raypoly.values import Problem


@dataclass(frozen=True)
class Today:
    """What the run's rollouts are held against."""

    problems: Mapping[str, Problem]
    """By id."""
    hash: str
    """Of the set's content, or the path of the file that was named instead."""


def problems_of(run: Run, path: Path | None, note: Callable[[str], None]) -> Today:
    """The problems that the run's config names, or those of the file `path`; differences go to `note`.

    Raises `UsageError` where they can't be read any more.
    """
    if path is not None:
        note(f"Problems of {path}, in place of those that the run's config names.")
        return Today(by_id(read_problems(path).problems), str(path))
    try:
        found = problems.build_problem_set(run.config.problems)
    except UsageError as error:
        raise UsageError(f"{str(error).rstrip('.')}; or name a file of the run's problems by --problems.") from error
    if not run.problem_sets:
        note("The run does not say what its problems were: nobody knows whether they have changed since.")
    elif run.problem_sets != (found.hash,):
        was = ", ".join(name[:12] for name in run.problem_sets)
        note(f"The problem set has changed since the run began: its content is {found.hash[:12]} now and was {was}.")
    return Today(by_id(problem for split in found.splits.values() for problem in split), found.hash)
