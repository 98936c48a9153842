"""The files of a preparation, found here or on the hub, and the problems in them.

    loaded = load_sources(config.sources)
    loaded.candidates; [decision.reason for decision in loaded.decisions]

A row becomes a problem, or is set aside with a reason; of the problems a source's `where` and `take` choose.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from raypoly.core.caches import file_sha256
from raypoly.core.errors import UsageError
from raypoly.core.plugins import PACKAGED_PROBLEMS
from raypoly.core.seeds import derive
from raypoly.core.values import Problem
from raypoly.data.formats import FORMATS, problem_of
from raypoly.data.formats.row_fields import LONGEST_REASON, one_line, row_id
from raypoly.data.formats.row_files import numbered_throughout, rows_of
from raypoly.data.hub import HubSplit
from raypoly.data.jsonl import outside_window
from raypoly.data.preparing.candidates import Candidate, ProblemBuffer, SourceFacts, facts_of, split_of
from raypoly.data.preparing.decision_log import Decision
from raypoly.data.preparing.prepare_config import SourceConfig
from raypoly.data.preparing.row_conditions import MATCHES, RowMatch


@dataclass(frozen=True)
class SourceFile:
    """On this machine; or the files of a data set's split."""

    name: str
    paths: tuple[Path, ...]
    revision: str | None
    sha256: str
    """Of several files: of their digests."""


@dataclass(frozen=True)
class ReadRow:
    facts: SourceFacts
    problem_id: str | None
    """None if the row has none."""
    reason: str = ""
    """Empty if it is usable."""
    problem: Problem | None = None
    match: RowMatch = MATCHES


Reader = Callable[[SourceFile, SourceConfig], Iterator[ReadRow]]


@dataclass(frozen=True)
class LoadedSources:
    candidates: list[Candidate]
    """In the order of config and files; each id once."""
    decisions: list[Decision]
    """One for each row, also those set aside."""
    files: list[SourceFile]
    rows: Mapping[str, int] = field(default_factory=dict)
    """By source."""
    choices: list[Decision] = field(default_factory=list)
    """Of problems that `where` or `take` leaves out."""


def find_source(name: str, source: SourceConfig) -> SourceFile:
    """Downloads it if it is on the hub. Raises `UsageError` if there is none."""
    known = [format_.name for format_ in FORMATS]
    if source.format is not None and source.format not in known:
        raise UsageError(f"The format {source.format!r} of {name} is unknown; known are {', '.join(known)}.")
    paths: tuple[Path, ...] = (Path(str(source.path)).expanduser(),)
    revision = source.revision
    if source.hub is not None:
        split = HubSplit(source.hub, source.revision, source.subset, source.split, source.file)
        paths, commit = split.find(f"The data set of {name}, {source.hub},")
        revision = commit or revision
    elif (packaged := PACKAGED_PROBLEMS.get(str(source.path))) is not None:
        paths = (packaged.find(f"The file of {name}, {source.path},"),)
    digests = [_digest(name, path) for path in paths]
    whole = digests[0] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()
    return SourceFile(name, paths, revision, whole)


def digests_here(sources: Mapping[str, SourceConfig]) -> dict[str, str]:
    """SHA-256, hex, of sources that are a file or a folder on this machine, by name."""
    places = {name: Path(str(source.path or source.hub)).expanduser() for name, source in sources.items()}
    return {name: find_source(name, sources[name]).sha256 for name, place in places.items() if place.exists()}


def _digest(name: str, path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise UsageError(f"The file of {name}, {path}, can't be read: {error.strerror or error}.") from error


def load_sources(
    sources: Mapping[str, SourceConfig], files: Sequence[SourceFile] | None = None, read: Reader | None = None
) -> LoadedSources:
    """`read`: default, one by one in this process.

    Raises `UsageError` if a file can't be read, none of its rows is usable or chosen, or no row has a field of `where`.
    """
    files = [find_source(name, source) for name, source in sources.items()] if files is None else files
    rows, taken = dict[str, int](), dict[str, str]()
    found, buffer = LoadedSources([], [], list(files), rows), ProblemBuffer()
    for file in files:
        choice, matching = RowChoice(file.name, sources[file.name]), list[Candidate]()
        first: Decision | None = None
        for row in (read or read_file)(file, sources[file.name]):
            rows[file.name] = rows.get(file.name, 0) + 1
            decision, problem = _unique(row, taken)
            found.decisions.append(decision)
            if problem is None:
                first = first or decision
                continue
            taken[problem.id] = file.name
            if choice.matches(problem.id, row.facts, row.match):
                matching.append(Candidate.of(problem, row.facts, buffer))
        if file.name not in taken.values():
            why = f": row {first.facts['row']}: {first.reason}" if first else ": it is empty"
            raise UsageError(f"The file of {file.name}, {file.paths[0]}, has no usable row{why}.")
        found.candidates.extend(choice.draw(matching))
        found.choices.extend(choice.left_out)
    return found


def read_row(row: Any, facts: SourceFacts, source: SourceConfig) -> ReadRow:
    """A function of the row alone. A `ValueError` stands for one that can't be parsed."""
    problem_id: str | None = None
    try:
        if isinstance(row, ValueError):
            raise row
        problem = problem_of(row, facts.source).compared_by(source.comparison)
        problem_id = problem.id
        if source.format is not None:
            known = next((format_.name for format_ in FORMATS if format_.recognises(row)), "none")
            if known != source.format:
                raise ValueError(f"its format is {known}, not {source.format}")
        all_facts = facts_of(problem, facts)
        if source.row_split is not None and split_of(row) != source.row_split:
            raise ValueError(f"its split is {split_of(row) or 'not said'}, not {source.row_split}")
        since, until = (None if day is None else day.isoformat() for day in (source.since, source.until))
        if why := outside_window(all_facts.date, since, until):
            raise ValueError(why)
        if not problem.prompt:
            raise ValueError("its row has no text to ask the policy with")
    except ValueError as error:
        return ReadRow(facts, problem_id or row_id(row), one_line(str(error), LONGEST_REASON))
    if not source.where:
        return ReadRow(all_facts, problem_id, "", problem)
    of_problem = {"difficulty": all_facts.difficulty, "date": all_facts.date, "tags": all_facts.tags}
    fields = {**row, **{name: fact for name, fact in of_problem.items() if fact}}
    return ReadRow(all_facts, problem_id, "", problem, source.conditions.match(fields))


def read_file(file: SourceFile, source: SourceConfig) -> Iterator[ReadRow]:
    """In the file's order. Raises `UsageError`."""
    for number, row in numbered_throughout(file.paths, rows_of):
        yield read_row(row, SourceFacts(file.name, number, file.revision, source.licence), source)


def _unique(row: ReadRow, taken: Mapping[str, str]) -> tuple[Decision, Problem | None]:
    """`taken`: the source of each id before it."""
    facts, problem, reason, problem_id = row.facts, row.problem, row.reason, row.problem_id
    if problem is not None and problem.id in taken:
        if taken[problem.id] != facts.source:  # another data set counts its problems in the same way
            problem_id = f"{facts.source}/{problem_id}"
            problem = replace(problem, id=problem_id)
        if problem.id in taken:
            problem, reason = None, f"{problem_id!r} appears a second time; ids have to differ"
    return Decision(problem_id, "load", reason, {"source": facts.source, "row": facts.row}), problem


def describe_loaded(loaded: LoadedSources) -> str:
    """How many rows are usable, and the first that was set aside, in words."""
    words = f"{len(loaded.candidates) + len(loaded.choices):,} problems of {len(loaded.decisions):,} rows"
    if loaded.choices:
        words += f", of which where and take choose {len(loaded.candidates):,}"
    first = next((decision for decision in loaded.decisions if decision.reason), None)
    if first is None:
        return words
    facts = first.facts
    return f"{words}; the first that was set aside is row {facts['row']} of {facts['source']}: {first.reason}"


class RowChoice:
    def __init__(self, name: str, source: SourceConfig) -> None:
        self._name, self._source = name, source
        self.left_out: list[Decision] = []
        self._absent: set[str] | None = None  # fields of `where` that every row so far lacks
        self._present: set[str] = set()

    def matches(self, problem_id: str, facts: SourceFacts, match: RowMatch) -> bool:
        """Whether a usable row meets `where`; else it is left out."""
        self._absent = set(match.absent) if self._absent is None else self._absent & set(match.absent)
        self._present.update(match.present)
        if match.unmet:
            self._leave_out(problem_id, facts, match.unmet)
        return not match.unmet

    def draw(self, matching: Sequence[Candidate]) -> list[Candidate]:
        """`take` of those that meet `where`, in their order; a larger `take` adds to a smaller one.

        Raises `UsageError` if there are fewer, or none, or if no row had a field of `where`.
        """
        if self._absent:
            raise UsageError(
                f"where of {self._name} names the field {min(self._absent)!r}, which none of its usable rows has; they "
                f"have {', '.join(sorted(self._present))}."
            )
        if not matching:
            one = self.left_out[0]
            raise UsageError(f"No problem of {self._name} meets its where; of {one.problem_id}, for one: {one.reason}.")
        take = self._source.take
        if take is None:
            return list(matching)
        if take > len(matching):
            raise UsageError(f"take={take} of {self._name} is more than its {len(matching)} problems: lower it.")
        order = sorted(it.id for it in matching)
        random.Random(derive(self._source.seed or 0, "prepare take", self._name)).shuffle(order)
        drawn = set(order[:take])
        for it in matching:
            if it.id not in drawn:
                self._leave_out(it.id, it.facts, f"it is not among the {take} that take drew")
        return [it for it in matching if it.id in drawn]

    def _leave_out(self, problem_id: str, facts: SourceFacts, reason: str) -> None:
        self.left_out.append(Decision(problem_id, "choose", reason, {"source": facts.source, "row": facts.row}))
