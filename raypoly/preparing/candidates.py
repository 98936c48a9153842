"""A problem on its way through a preparation, with what its row said of where it comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from raypoly.preparing.problem_buffer import Kept, ProblemBuffer
from raypoly.values import Problem

Ask = Callable[[Problem], Problem]
"""Gives a problem its prompt."""


@dataclass(frozen=True)
class SourceFacts:
    """What is said of a problem beside the problem; empty or None where the row does not say."""

    source: str
    """The name of its source in the config."""
    row: int
    """From 1."""
    revision: str | None = None
    licence: str | None = None
    date: str | None = None
    """ISO 8601."""
    difficulty: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A problem that is still in the running; only what is said of it is held in memory."""

    id: str
    kept: Kept
    """The problem as its row has it."""
    facts: SourceFacts
    has_solution: bool
    ask: Ask | None = None
    """Gives it its prompt."""
    prompt: str | None = None
    """Its prompt in the end, where it is another one."""
    prompt_tokens: int | None = None
    """None where nobody counted."""
    samples: int = 0
    passes: int | None = None
    """Of the samples; None where the model was not asked."""

    @classmethod
    def of(cls, problem: Problem, facts: SourceFacts, spool: ProblemBuffer) -> Self:
        return cls(problem.id, spool.keep(problem), facts, bool(problem.solution))

    @property
    def problem(self) -> Problem:
        """The problem as it is now, read from where it is kept."""
        problem = self.kept.problem
        if self.ask is not None:
            problem = self.ask(problem)
        return problem if self.prompt is None else replace(problem, prompt=self.prompt)


def content(problem: Problem) -> str:
    """SHA-256, hex, of what a problem says, whatever it is called and wherever it lies."""
    parts = [problem.prompt, problem.entry_point, problem.tests.hash, problem.prelude, problem.answer, problem.prefix]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def content_of(candidates: Iterable[Candidate]) -> str:
    """SHA-256, hex, of several candidates in order, solutions and ids included."""
    digest = hashlib.sha256()
    for it in candidates:
        problem = it.problem
        digest.update(json.dumps([it.id, content(problem), problem.solution]).encode())
    return digest.hexdigest()


def facts_of(problem: Problem, facts: SourceFacts) -> SourceFacts:
    """The facts with what the problem's row says beside."""
    told = problem.metadata
    level, tags = told.get("difficulty", "").strip().lower(), told.get("tags", "")
    return replace(facts, date=told.get("date"), difficulty=level or None, tags=tuple(filter(None, tags.split(", "))))


def split_of(row: Mapping[str, Any]) -> str | None:
    """The split that a row says it belongs to."""
    extra = row.get("extra_info")
    found = row.get("split") or (extra.get("split") if isinstance(extra, Mapping) else None)
    return found if isinstance(found, str) else None
