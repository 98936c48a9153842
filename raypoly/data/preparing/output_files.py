"""The data of a preparation: for each split a Parquet file with provenance, and the same as JSON lines.

    data/train.parquet      raypoly's own row as columns (tests as JSON text) beside where each problem comes from;
                            `public_tests` is a column where any problem has such tests
    data/train.jsonl        raypoly's own rows (docs/problem-formats.md), provenance in their metadata

The bytes depend on the problems alone: no time, path or machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from raypoly.core.values import Problem
from raypoly.data.formats import row_of
from raypoly.data.formats.long_integers import dumps
from raypoly.data.preparing.candidates import Candidate, SourceFacts, content_hash
from raypoly.data.preparing.decision_log import Decision

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("prompt", pa.string()),
        ("entry_point", pa.string()),
        ("prelude", pa.string()),
        ("prefix", pa.string()),
        ("answer", pa.string()),
        ("solution", pa.string()),
        ("reference_seconds", pa.float64()),
        ("tests", pa.string()),
        ("metadata", pa.string()),
        ("source", pa.string()),
        ("revision", pa.string()),
        ("licence", pa.string()),
        ("row", pa.int64()),
        ("sha256", pa.string()),
        ("date", pa.string()),
        ("difficulty", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("prompt_tokens", pa.int64()),
        ("samples", pa.int64()),
        ("passes", pa.int64()),
    ]
)
_WITH_PUBLIC = SCHEMA.append(pa.field("public_tests", pa.string()))
_ROW_GROUP = 256
_GROUP_CHARACTERS = 64 << 20  # the most characters of tests in one group


def write_jsonl(candidates: Iterable[Candidate], file: IO[bytes]) -> None:
    for it in candidates:
        file.write(f"{dumps(row_of(_told(it)))}\n".encode())


def write_parquet(candidates: Iterable[Candidate], file: IO[bytes]) -> None:
    kept = list(candidates)
    schema = _WITH_PUBLIC if any(it.has_public_tests for it in kept) else SCHEMA
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in _row_groups(map(_columns, kept)):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _row_groups(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    # a group of rows is in memory at once, and tests may have megabytes
    group: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row["tests"])
        if len(group) == _ROW_GROUP or size >= _GROUP_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def encode_exclusions(decisions: Iterable[Decision]) -> bytes:
    """A list for `problems.exclude`: every problem and row that was left out.

    An unusable row has no id there if another row of that id is usable.
    """
    decisions = list(decisions)
    usable = {it.problem_id for it in decisions if it.stage == "load" and not it.reason}
    rows = (
        {
            "problem_id": None if it.stage == "load" and it.problem_id in usable else it.problem_id,
            "reason": it.reason,
            "stage": it.stage,
            **{name: value for name, value in it.facts.items() if name != "prompt"},
        }
        for it in decisions
        if it.reason
    )
    return b"".join(f"{json.dumps(row)}\n".encode() for row in rows)


def _told(it: Candidate) -> Problem:
    """With provenance as text in its metadata."""
    problem, facts = it.problem, it.facts
    told = _provenance(problem, facts) | {
        "row": str(facts.row),
        "tags": ", ".join(facts.tags),
        "passes": None if it.passes is None else f"{it.passes} of {it.samples}",
    }
    kept = {name: value for name, value in told.items() if value}
    return replace(problem, metadata={**problem.metadata, **kept})


def _columns(it: Candidate) -> dict[str, Any]:
    problem, facts = it.problem, it.facts
    row = row_of(problem)
    return {
        **{name: row.get(name, "") for name in ("id", "prompt", "entry_point", "prelude", "prefix", "solution")},
        "answer": problem.answer,
        "reference_seconds": problem.reference_seconds,
        "tests": dumps(row["tests"]),
        "public_tests": dumps(row["public_tests"]) if problem.public_tests else None,
        "metadata": json.dumps(dict(problem.metadata), sort_keys=True),
        **_provenance(problem, facts),
        "prompt_tokens": it.prompt_tokens,
        "samples": it.samples or None,
        "passes": it.passes,
    }


def _provenance(problem: Problem, facts: SourceFacts) -> dict[str, Any]:
    return {
        "source": facts.source,
        "revision": facts.revision,
        "licence": facts.licence,
        "row": facts.row,
        "sha256": content_hash(problem),
        "date": facts.date,
        "difficulty": facts.difficulty,
        "tags": list(facts.tags),
    }
