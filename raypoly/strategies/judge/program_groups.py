"""Groups of programs from a file, run so that a judge has evidence to read.

    with observing(scorer_config) as observe:
        for seen in observe(read_groups(Path("groups.jsonl"))):
            judge.label(seen.group.problem, seen.rollouts, seen.verdicts)

Sandboxes of this machine find the verdicts, by the row's own tests where it has some. Without tests a program that
loads passes, and its text alone says what it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from raypoly.core.config import ScorerConfig
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.data.formats.python_source import prelude_without
from raypoly.data.formats.row_files import FileRow, read_rows_by_id
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.strategies.judge.gold import PRELUDE, GoldGroup, group_problem
from raypoly.verifier import LocalPool
from raypoly.verifier.code_extraction import extract_code
from raypoly.verifier.local_pool import BROKEN
from raypoly.verifier.score_programs import limit_workers, score_each

_METHOD = re.compile(
    r"^class[ \t]+Solution\b.*?^[ \t]+(?:async[ \t]+)?def[ \t]+([A-Za-z]\w*)", re.MULTILINE | re.DOTALL
)
_FENCE = "```"
_FUNCTION = re.compile(r"^(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class ProgramGroup:
    """One problem with N programs."""

    id: str
    problem: Problem
    """Its `answer` is `completion`: a program's text is the program and nothing else."""
    programs: tuple[str, ...]
    """A blank one is no code. Of a response with a fenced block only the program is kept."""


@dataclass(frozen=True)
class ObservedGroup:
    """A group with its N verdicts."""

    group: ProgramGroup
    verdicts: tuple[Verdict, ...]

    @cached_property
    def rollouts(self) -> tuple[Rollout, ...]:
        """The programs as responses without tokens, since no policy sampled them."""
        return tuple(map(Rollout.of_text, self.group.programs))

    @property
    def trouble(self) -> str:
        """Why the sandbox could not run a program, or empty."""
        return next((v.detail.removeprefix(BROKEN) for v in self.verdicts if v.status == "infra"), "")


Observe = Callable[[Iterable[ProgramGroup]], Iterator[ObservedGroup]]


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, hide_input_in_errors=True)
    id: str = Field(min_length=1)
    problem: str
    programs: list[str | None] = Field(min_length=1)
    entry_point: str = ""
    prelude: str | None = None
    tests: str = ""


def read_groups(path: Path) -> list[ProgramGroup]:
    """All groups of a file of `{id, problem, programs, entry_point?, prelude?, tests?}`, in its order.

    Raises `UsageError`, with file and line, where a row is no group, and where the file has none or can't be read.
    """
    return read_rows_by_id(path, _read_group, "group; a row is {id, problem, programs}")


def group_of_gold(gold: GoldGroup) -> ProgramGroup:
    """A gold group without its labels."""
    return _make_group(gold.as_problem(), gold.programs)


@contextmanager
def observing(config: ScorerConfig, programs: int | None = None) -> Iterator[Observe]:
    """A pool of sandboxes for about so many programs, as a function that runs groups and keeps their order.

    Make one call of the function at a time.
    """

    def programs_of(group: ProgramGroup) -> list[tuple[Problem, str | None]]:
        return [(_problem_for(group.problem, text), text if text.strip() else None) for text in group.programs]

    limited = config if programs is None else limit_workers(config, programs)
    with LocalPool(limited, StrategyEvidence(), calibrate=False) as pool:
        yield lambda groups: (ObservedGroup(*scored) for scored in score_each(pool, groups, programs_of))


def entry_point_of(program: str) -> str:
    """A guess at what callers call: the first method of `Solution`, else function."""
    if method := _METHOD.search(program):
        return f"Solution().{method[1]}"
    function = _FUNCTION.search(program)
    return function[1] if function else ""


def _problem_for(problem: Problem, program: str) -> Problem:
    if problem.entry_point:
        return problem
    name = entry_point_of(program)
    # The pool tells problems apart by their ids, and calls this entry point for all programs of one id.
    own_id, prelude = f"{problem.id} [{name}]", prelude_without(problem.prelude, name)
    return replace(problem, id=own_id, entry_point=name, prelude=prelude)


def _read_group(source: FileRow) -> ProgramGroup:
    row = source.parse_as(_Row)
    prelude = PRELUDE if row.prelude is None else row.prelude
    problem = group_problem(row.id, row.problem, row.entry_point, row.tests, prelude)
    return _make_group(problem, [program or "" for program in row.programs])


def _make_group(problem: Problem, texts: Sequence[str]) -> ProgramGroup:
    programs = (extract_code(problem, text) or "" if _FENCE in text else text for text in texts)
    return ProgramGroup(problem.id, replace(problem, answer="completion"), tuple(programs))
