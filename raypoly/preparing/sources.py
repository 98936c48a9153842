"""The files of a preparation, found here or on the hub, and the problems in them.

    loaded = load_sources(config.sources)
    loaded.candidates; [decision.reason for decision in loaded.decisions]

A row becomes a problem, or is set aside with a reason. The reader of its format gives date, difficulty and tags.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from raypoly.errors import UsageError
from raypoly.packaged_files import PACKAGED_PROBLEMS
from raypoly.preparing.candidates import Candidate, ProblemBuffer, SourceFacts, facts_of, split_of
from raypoly.preparing.decision_log import Decision
from raypoly.preparing.prepare_config import SourceConfig
from raypoly.problems.formats import FORMATS, problem_of
from raypoly.problems.formats.row_fields import LONGEST_REASON, one_line, row_id
from raypoly.problems.formats.row_files import rows_of
from raypoly.problems.jsonl import outside_window
from raypoly.values import Problem


@dataclass(frozen=True)
class SourceFile:
    """A source's file on this machine."""

    name: str
    path: Path
    revision: str | None
    sha256: str


@dataclass(frozen=True)
class ReadRow:
    """The result of reading one row."""

    facts: SourceFacts
    problem_id: str | None
    """None if the row has none."""
    reason: str = ""
    """Why it is set aside; empty if it is usable."""
    problem: Problem | None = None


Reader = Callable[[SourceFile, SourceConfig], Iterator[ReadRow]]
"""Reads a file's rows, in its order."""


@dataclass(frozen=True)
class LoadedSources:
    """The sources' problems and bad rows."""

    candidates: list[Candidate]
    """In the order of the config and of the files; each id once."""
    decisions: list[Decision]
    """One for each row, also those set aside."""
    files: list[SourceFile]
    rows: Mapping[str, int] = field(default_factory=dict)
    """By source."""


def find_source(name: str, source: SourceConfig) -> SourceFile:
    """The source's file, downloaded if it is on the hub. Raises `UsageError` if there is none."""
    known = [format_.name for format_ in FORMATS]
    if source.format is not None and source.format not in known:
        raise UsageError(f"The format {source.format!r} of {name} is unknown; known are {', '.join(known)}.")
    path, revision = Path(str(source.path)).expanduser(), source.revision
    if source.hub is not None:
        path, revision = _download(name, source)
    elif (packaged := PACKAGED_PROBLEMS.get(str(source.path))) is not None:
        path = packaged.find(f"The file of {name}, {source.path},")
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"The file of {name}, {path}, can't be read: {error.strerror or error}.") from error
    return SourceFile(name, path, revision, digest)


def load_sources(
    sources: Mapping[str, SourceConfig], files: Sequence[SourceFile] | None = None, read: Reader | None = None
) -> LoadedSources:
    """All problems of the sources. `read` is another way to read a file's rows than one by one in this process.

    Raises `UsageError` if a file can't be read, or none of its rows is usable.
    """
    files = [find_source(name, source) for name, source in sources.items()] if files is None else files
    rows, taken = dict[str, int](), dict[str, str]()
    found, buffer = LoadedSources([], [], list(files), rows), ProblemBuffer()
    for file in files:
        before = len(found.candidates)
        first: Decision | None = None
        for row in (read or read_file)(file, sources[file.name]):
            rows[file.name] = rows.get(file.name, 0) + 1
            decision, problem = _unique(row, taken)
            found.decisions.append(decision)
            if problem is not None:
                taken[problem.id] = file.name
                found.candidates.append(Candidate.of(problem, row.facts, buffer))
            else:
                first = first or decision
        if len(found.candidates) == before:
            why = f": row {first.facts['row']}: {first.reason}" if first else ": it is empty"
            raise UsageError(f"The file of {file.name}, {file.path}, has no usable row{why}.")
    return found


def read_row(row: Any, facts: SourceFacts, source: SourceConfig) -> ReadRow:
    """The content of one row: a function of the row alone. A `ValueError` stands for a row that can't be parsed."""
    problem_id: str | None = None
    try:
        if isinstance(row, ValueError):
            raise row
        problem = problem_of(row, facts.source)
        problem_id = problem.id
        if source.format is not None:
            known = next((format_.name for format_ in FORMATS if format_.recognises(row)), "none")
            if known != source.format:
                raise ValueError(f"its format is {known}, not {source.format}")
        all_facts = facts_of(problem, facts)
        if source.split is not None and split_of(row) != source.split:
            raise ValueError(f"its split is {split_of(row) or 'not said'}, not {source.split}")
        since, until = (None if day is None else day.isoformat() for day in (source.since, source.until))
        if why := outside_window(all_facts.date, since, until):
            raise ValueError(why)
        if not problem.prompt:
            raise ValueError("its row has no text to ask the policy with")
    except ValueError as error:
        return ReadRow(facts, problem_id or row_id(row), one_line(str(error), LONGEST_REASON))
    return ReadRow(all_facts, problem_id, "", problem)


def read_file(file: SourceFile, source: SourceConfig) -> Iterator[ReadRow]:
    """A file's rows in its order. Raises `UsageError`."""
    for number, row in rows_of(file.path):
        yield read_row(row, SourceFacts(file.name, number, file.revision, source.licence), source)


def _unique(row: ReadRow, taken: Mapping[str, str]) -> tuple[Decision, Problem | None]:
    """Decide about a row, given those before it; `taken` has the source of each id."""
    facts, problem, reason, problem_id = row.facts, row.problem, row.reason, row.problem_id
    if problem is not None and problem.id in taken:
        if taken[problem.id] != facts.source:  # another data set counts its problems in the same way
            problem_id = f"{facts.source}/{problem_id}"
            problem = replace(problem, id=problem_id)
        if problem.id in taken:
            problem, reason = None, f"{problem_id!r} appears a second time; ids have to differ"
    return Decision(problem_id, "load", reason, {"source": facts.source, "row": facts.row}), problem


def _download(name: str, source: SourceConfig) -> tuple[Path, str]:
    """A hub file's copy in the hub's cache, and the commit that it is of."""
    from huggingface_hub import hf_hub_download  # half a second, which local files do not need

    try:
        path = Path(hf_hub_download(str(source.hub), str(source.file), repo_type="dataset", revision=source.revision))
    except (OSError, ValueError) as error:  # no such data set or file, or no way there
        raise UsageError(
            f"The file of {name}, {source.file} of {source.hub} at {source.revision}, could not be had from the "
            f"Hugging Face hub ({str(error).partition(chr(10))[0]})."
        ) from error
    parts = path.parts
    snapshot = parts[parts.index("snapshots") + 1] if "snapshots" in parts else str(source.revision)
    return path, snapshot
