"""Rows of a Parquet file as a few at a time, as large as they may be: nested columns are lists and dicts.

    for number, row in rows(Path("train-00000-of-00039.parquet")): ...

Columns that no format reads, such as CodeContests' wrong programs, which are most of it, are left on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raypoly.core.errors import UsageError

BATCH_BYTES, BATCH_ROWS = 16 << 20, 64
"""Of values, decoded together; a larger row comes alone. Equal values take a file's space once: hence few rows."""
SMALL_BYTES = 1 << 20
"""Rows of no more values together are made Python's together, which takes a tenth of the time."""
LARGEST_ROW = 1 << 28
"""Bytes of a row's values; a larger one is passed over. Python's objects take several times the memory."""
_NO_VALUES = (ValueError, OverflowError, pa.ArrowException)
_UNREAD = frozenset(("incorrect_solutions", "incorrect_submissions", "validator", "generator", "editorial"))


def count_parquet_rows(file: Path) -> int:
    with _open_parquet(file) as opened:
        return int(opened.metadata.num_rows)


def column_names(file: Path) -> list[str]:
    with _open_parquet(file) as opened:
        return list(opened.schema_arrow.names)


def read_parquet(file: Path, wanted: Sequence[str] | None = None) -> Iterator[tuple[int, Any]]:
    """Each row with its place, from 1, or the `ValueError` that says why it can't be had. Raises `UsageError`.

    `wanted`: the columns to read, of those that there are; all but `_UNREAD` where it is None.
    """
    number = 0
    with _open_parquet(file, buffer_size=1 << 20, pre_buffer=False) as opened:
        names = opened.schema_arrow.names
        read = [name for name in names if (name not in _UNREAD if wanted is None else name in wanted)]
        for batch in opened.iter_batches(_at_once(opened.metadata), columns=read, use_threads=False):
            for row in _rows(batch):
                number += 1
                yield number, row


@contextmanager
def _open_parquet(file: Path, **how: Any) -> Iterator[pq.ParquetFile]:
    """Raises `UsageError` where the file, or what is read of it meanwhile, is damaged."""
    try:
        with pq.ParquetFile(file, **how) as opened:
            yield opened
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{file} can't be read as Parquet: {error}.") from error


def _at_once(metadata: pq.FileMetaData) -> int:
    """Rows that make up about `BATCH_BYTES` where they are largest."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    largest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // max(largest, 1)))


def _rows(batch: pa.RecordBatch) -> Iterable[Any]:
    if batch.nbytes <= SMALL_BYTES:
        with suppress(*_NO_VALUES):  # a row's fault, which is found where each comes alone
            together: list[Any] = batch.to_pylist()
            return together
    return (_row(batch.slice(place, 1)) for place in range(batch.num_rows))


def _row(one: pa.RecordBatch) -> Any:
    if one.nbytes > LARGEST_ROW:
        return ValueError(f"more than {LARGEST_ROW >> 20} MiB")
    try:
        return one.to_pylist()[0]
    except _NO_VALUES as error:
        return ValueError(f"no values that Python has: {error}")
