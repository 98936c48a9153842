"""What `raypoly score --duplicates` does with files: read, compare, print a table, write an exclusion list."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raypoly.offline.row_writer import STDOUT, RowWriter
from raypoly.offline.score.score_files import NOTES, note_rejected, say, spare
from raypoly.problems.formats import ProblemStream
from raypoly.problems.similar import DuplicatePair, find_duplicates, find_overlaps

SHOWN = 40
"""Pairs that are printed; `--out` has them all."""


def compare_files(problems: Path, against: Path | None, out: str | None) -> None:
    """Pairs within a file, or of a file with problems that it must not have. Raises `UsageError` for bad input."""
    inputs = [problems] if against is None else [problems, against]
    if out is not None:
        spare(out, *inputs)
    ours, *theirs = (ProblemStream(path) for path in inputs)
    with ExitStack() as stack:
        rows = stack.enter_context(RowWriter.opened(out)) if out is not None else None
        pairs = find_overlaps(ours, theirs[0]) if theirs else find_duplicates(ours)
        for path, stream in zip(inputs, (ours, *theirs), strict=True):
            note_rejected(path, stream.rejected)
        if rows is not None:
            for pair in pairs:
                rows.write(row_of_pair(pair))
            rows.done()
    console = NOTES if out == STDOUT else Console()
    if pairs:
        console.print(_table(pairs[:SHOWN]))
    where = f"are in {against} as well" if against else "are there a second time"
    more = f" (the first {SHOWN} are shown)" if len(pairs) > SHOWN else ""
    say(console, f"{len(pairs):,} of {len(ours.ids):,} problems of {problems} {where}{more}")
    if out not in (None, STDOUT):
        say(console, f"exclusion list: {out}")


def row_of_pair(pair: DuplicatePair) -> dict[str, Any]:
    """A row of an exclusion list, which `problems.exclude` reads; `similarity` is null where a statement is missing."""
    return {
        "problem_id": pair.dropped.id,
        "reason": pair.reason,
        "same_as": pair.kept.id,
        "source": pair.kept.source,
        "similarity": None if pair.similarity is None else round(pair.similarity, 4),
    }


def _table(pairs: list[DuplicatePair]) -> Table:
    table = Table()
    for name in ("problem", "is the same as", "because of"):
        table.add_column(name, overflow="fold")
    table.add_column("similarity", justify="right")
    for pair in pairs:
        similarity = "unknown" if pair.similarity is None else f"{pair.similarity:.2f}"
        table.add_row(Text(pair.dropped.id), Text(pair.kept.id), pair.reason, similarity)
    return table
