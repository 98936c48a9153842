"""A problem on its way through a preparation, with what its row said of where it comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from raypoly.values import Problem


@dataclass(frozen=True)
class Facts:
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
    """A problem that is still in the running."""

    problem: Problem
    facts: Facts
    prompt_tokens: int | None = None
    """None where nobody counted."""
    samples: int = 0
    passes: int | None = None
    """Of the samples; None where the model was not asked."""

    @property
    def id(self) -> str:
        return self.problem.id

    def with_prompt(self, prompt: str, tokens: int) -> Candidate:
        return replace(self, problem=replace(self.problem, prompt=prompt), prompt_tokens=tokens)


def content(problem: Problem) -> str:
    """SHA-256, hex, of what a problem says, whatever it is called and wherever it lies."""
    parts = [problem.prompt, problem.entry_point, problem.tests.hash, problem.prelude, problem.answer, problem.prefix]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def content_of(candidates: Iterable[Candidate]) -> str:
    """SHA-256, hex, of several candidates in order, solutions and ids included."""
    digest = hashlib.sha256()
    for it in candidates:
        digest.update(json.dumps([it.id, content(it.problem), it.problem.solution]).encode())
    return digest.hexdigest()


def facts_of(problem: Problem, facts: Facts) -> Facts:
    """The facts with what the problem's row says beside."""
    told = problem.metadata
    level, tags = told.get("difficulty", "").strip().lower(), told.get("tags", "")
    return replace(facts, date=told.get("date"), difficulty=level or None, tags=tuple(filter(None, tags.split(", "))))


def split_of(row: Mapping[str, Any]) -> str | None:
    """The split that a row says it belongs to."""
    extra = row.get("extra_info")
    found = row.get("split") or (extra.get("split") if isinstance(extra, Mapping) else None)
    return found if isinstance(found, str) else None
