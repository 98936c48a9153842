"""A problem on its way through a preparation, with its provenance.

    candidate = Candidate.of(problem, SourceFacts("leetcode", 17), ProblemBuffer())
    candidate.problem                   # read from the buffer each time

Facts are in memory. Problems, whose tests are large, are in a buffer: in memory while they are few, else in a file.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from raypoly.core.values import Problem
from raypoly.data.preparing.decision_log import Decision
from raypoly.data.public_tests import public_digest

MEMORY = 64 << 20
"""The most bytes of problems that a buffer keeps without a file."""
PromptMaker = Callable[[Problem], Problem]


class ProblemBuffer:
    """An unnamed file of problems in `$TMPDIR`, which lives as long as a problem refers to it."""

    def __init__(self, memory: int | None = None) -> None:
        size = MEMORY if memory is None else memory
        self._file = tempfile.SpooledTemporaryFile(max_size=size)  # noqa: SIM115  open as long as a problem is asked for
        self._lock = threading.Lock()

    def add(self, problem: Problem) -> Callable[[], Problem]:
        """Returns a function that reads the problem again each time."""
        _ = problem.tests.hash  # once: it travels with the tests
        data = pickle.dumps(problem, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            place = self._file.seek(0, 2)
            self._file.write(data)
        return partial(self._read, place, len(data))

    def _read(self, place: int, size: int) -> Problem:
        with self._lock:
            self._file.seek(place)
            data = self._file.read(size)
        found: Problem = pickle.loads(data)  # this process wrote it
        return found


@dataclass(frozen=True)
class SourceFacts:
    """Of a problem's row; empty or None if it does not say."""

    source: str
    """Its name in the config."""
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
    id: str
    read: Callable[[], Problem] = field(repr=False, compare=False)
    facts: SourceFacts
    has_solution: bool
    make_prompt: PromptMaker | None = None
    """None if the prompt is its row's."""
    prompt: str | None = None
    """The cut prompt; None if it was not cut."""
    prompt_tokens: int | None = None
    """None if not counted."""
    samples: int = 0
    passes: int | None = None
    """None without sampling."""
    has_public_tests: bool = False

    @classmethod
    def of(cls, problem: Problem, facts: SourceFacts, buffer: ProblemBuffer) -> Self:
        public = problem.public_tests is not None
        return cls(problem.id, buffer.add(problem), facts, bool(problem.solution), has_public_tests=public)

    @property
    def problem(self) -> Problem:
        """With its current prompt."""
        problem = self.read()
        if self.make_prompt is not None:
            problem = self.make_prompt(problem)
        return problem if self.prompt is None else replace(problem, prompt=self.prompt)


def apply_decisions(candidates: Sequence[Candidate], decisions: Iterable[Decision]) -> list[Candidate]:
    """Those that a stage keeps, with its prompts and counts."""
    by_id = {decision.problem_id: decision for decision in decisions}
    going = (it for it in candidates if it.id not in by_id or not by_id[it.id].reason)
    return [_with_facts(it, by_id[it.id].facts) if it.id in by_id else it for it in going]


def _with_facts(it: Candidate, facts: Mapping[str, Any]) -> Candidate:
    return replace(
        it,
        prompt=facts.get("prompt", it.prompt),
        prompt_tokens=facts.get("tokens_now", facts.get("tokens", it.prompt_tokens)),
        samples=facts.get("samples", it.samples),
        passes=facts.get("passes", it.passes),
    )


def content_hash(problem: Problem) -> str:
    """SHA-256, hex, without id and place."""
    parts = [problem.prompt, problem.entry_point, problem.tests.hash, problem.prelude, problem.answer, problem.prefix]
    return hashlib.sha256(json.dumps([*parts, *public_digest(problem)]).encode()).hexdigest()


def contents_hash(candidates: Iterable[Candidate]) -> str:
    """SHA-256, hex, in order, solutions and ids included."""
    digest = hashlib.sha256()
    for it in candidates:
        problem = it.problem
        digest.update(json.dumps([it.id, content_hash(problem), problem.solution]).encode())
    return digest.hexdigest()


def facts_of(problem: Problem, facts: SourceFacts) -> SourceFacts:
    row = problem.metadata
    level, tags = row.get("difficulty", "").strip().lower(), row.get("tags", "")
    return replace(facts, date=row.get("date"), difficulty=level or None, tags=tuple(filter(None, tags.split(", "))))


def split_of(row: Mapping[str, Any]) -> str | None:
    extra = row.get("extra_info")
    found = row.get("split") or (extra.get("split") if isinstance(extra, Mapping) else None)
    return found if isinstance(found, str) else None
