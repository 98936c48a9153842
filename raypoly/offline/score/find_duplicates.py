"""What `raypoly score --duplicates` does with files: read, compare, print a table, write an exclusion list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from raypoly.offline.command_output import SHOWN, make_table, note_rejected, results_console, say, say_where
from raypoly.offline.row_writer import open_rows, refuse_overwriting
from raypoly.problems.formats import ProblemStream
from raypoly.problems.similar import DuplicatePair, find_duplicates, find_overlaps


def compare_files(problems: Path, against: Path | None, out: str | None) -> None:
    """Pairs within a file, or of a file with problems that it must not have. Raises `UsageError` for bad input."""
    inputs = [problems] if against is None else [problems, against]
    refuse_overwriting(out, *inputs)
    ours, *theirs = (ProblemStream(path) for path in inputs)
    with open_rows(out) as rows:
        pairs = find_overlaps(ours, theirs[0]) if theirs else find_duplicates(ours)
        for path, stream in zip(inputs, (ours, *theirs), strict=True):
            note_rejected(path, stream.rejected)
        for pair in pairs:
            rows.write(row_of_pair(pair))
        rows.finish()
    console = results_console(out)
    if pairs:
        console.print(_pair_table(pairs[:SHOWN]))
    where = f"are in {against} as well" if against else "are there a second time"
    more = f" (the first {SHOWN} are shown)" if len(pairs) > SHOWN else ""
    say(console, f"{len(pairs):,} of {len(ours.ids):,} problems of {problems} {where}{more}")
    say_where(console, "exclusion list", out)


def row_of_pair(pair: DuplicatePair) -> dict[str, Any]:
    """A row of an exclusion list, which `problems.exclude` reads; `similarity` is null where a statement is missing."""
    return {
        "problem_id": pair.dropped.id,
        "reason": pair.reason,
        "same_as": pair.kept.id,
        "source": pair.kept.source,
        "similarity": None if pair.similarity is None else round(pair.similarity, 4),
    }


def _pair_table(pairs: list[DuplicatePair]) -> Table:
    table = make_table(["problem", "is the same as", "because of"], ["similarity"])
    for pair in pairs:
        similarity = "unknown" if pair.similarity is None else f"{pair.similarity:.2f}"
        table.add_row(Text(pair.dropped.id), Text(pair.kept.id), pair.reason, similarity)
    return table
