"""Rows of a Parquet file as a few at a time, as large as they may be: nested columns are lists and dicts.

    for number, row in rows(Path("train-00000-of-00039.parquet")): ...

Columns that no format reads, such as CodeContests' wrong programs, which are most of it, are left on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raypoly.errors import UsageError

MAGIC = b"PAR1"
BATCH_BYTES, BATCH_ROWS = 16 << 20, 64
"""Of values, decoded together; a larger row comes alone. Equal values take a file's space once: hence few rows."""
LARGEST_ROW = 1 << 28
"""Bytes of a row's values; a larger one is passed over. Python's objects take several times the memory."""
UNREAD = frozenset(("incorrect_solutions", "incorrect_submissions", "validator", "generator", "editorial"))


def holds(file: Path) -> bool:
    """Whether a file begins as Parquet does; what is no plain file is not looked into."""
    try:
        if not file.is_file():
            return False
        with file.open("rb") as opened:
            return opened.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error}.") from error


def count(file: Path) -> int:
    """Rows, by the file's own account. Raises `UsageError`."""
    try:
        with pq.ParquetFile(file) as opened:
            return int(opened.metadata.num_rows)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file, error) from error


def rows(file: Path) -> Iterator[tuple[int, Any]]:
    """Each row with its place, from 1, or the `ValueError` that says why it can't be had. Raises `UsageError`."""
    number = 0
    try:
        with pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as opened:
            columns = [name for name in opened.schema_arrow.names if name not in UNREAD]
            for batch in opened.iter_batches(_at_once(opened.metadata), columns=columns, use_threads=False):
                for place in range(batch.num_rows):
                    number += 1
                    yield number, _row(batch.slice(place, 1))
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file, error) from error


def _at_once(metadata: pq.FileMetaData) -> int:
    """Rows that make up about `BATCH_BYTES` where they are largest."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    largest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(largest, 1)))


def _row(one: pa.RecordBatch) -> Any:
    if one.nbytes > LARGEST_ROW:
        return ValueError(f"more than {LARGEST_ROW >> 20} MiB")
    try:
        return one.to_pylist()[0]
    except (ValueError, OverflowError, pa.ArrowException) as error:
        return ValueError(f"no values that Python has: {error}")


def _unreadable(file: Path, error: Exception) -> UsageError:
    return UsageError(f"{file} can't be read as Parquet: {error}.")
