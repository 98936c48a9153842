"""Rows of files, whatever holds them: JSON lines, plain or gzipped, or Parquet; one file, a folder or `part-*.parquet`.

    for file in files_of(path):
        for number, row in rows_of(file):       # a row, or the ValueError that says why there is none
            ...

Rows come one by one. A file's first bytes say what it holds, not its name.
"""

from __future__ import annotations

import glob
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from raypoly.core.errors import UsageError
from raypoly.data.formats import parquet_rows
from raypoly.data.formats.long_integers import loads

LONGEST_LINE = 1 << 28
"""Bytes; a longer line is passed over without being held. What is read of a line takes several times its memory."""
_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")  # of the files that are read of a folder
_GZIP = b"\x1f\x8b"

Row = TypeVar("Row")


def files_of(path: Path) -> list[Path]:
    """The file itself, those of a folder, or those that a pattern names, by name. Raises `UsageError` for none."""
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.name.endswith(_ENDINGS))
        if not found:
            raise UsageError(f"{path} is a folder without a file {', '.join('*' + ending for ending in _ENDINGS)}.")
        return found
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    found = [Path(name) for name in sorted(glob.glob(str(path)))]
    if not found:
        raise UsageError(f"{path} names no file.")
    return found


def rows_of(file: Path) -> Iterator[tuple[int, Any]]:
    """Each row with its line or place, from 1; in its stead the `ValueError` that says why it can't be read.

    Raises `UsageError` where the file can't be read.
    """
    if parquet_rows.is_parquet(file):
        yield from parquet_rows.read_parquet(file)
        return
    for number, line in read_lines(file):
        yield number, parse_line(line)


def numbered_throughout(
    files: Iterable[Path], read: Callable[[Path], Iterable[tuple[int, Row]]]
) -> Iterator[tuple[int, Row]]:
    """What `read` finds in all files; the numbers of each go on where those before it end."""
    before = 0
    for file in files:
        number = 0
        for number, row in read(file):
            yield before + number, row
        before += number


def count_rows(file: Path) -> int:
    """Rows, good or bad; they are not looked at. Raises `UsageError` where the file can't be read."""
    return parquet_rows.count_parquet_rows(file) if parquet_rows.is_parquet(file) else sum(1 for _ in read_lines(file))


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank; one longer than `LONGEST_LINE` is cut to nothing but a mark of that.

    Raises `UsageError` where the file can't be read.
    """
    try:
        with path.open("rb") as plain:
            zipped = plain.peek(2)[:2] == _GZIP
            with gzip.open(plain, "rb") if zipped else plain as file:
                yield from _numbered(file)  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} can't be read: {error}.") from error


def _numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        whole = line.endswith(b"\n") or len(line) < LONGEST_LINE
        if not whole:
            line = b""
            while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
        if line.strip() or not whole:
            yield number, line


def parse_line(line: bytes) -> Any:
    if not line:
        return ValueError(f"longer than {LONGEST_LINE >> 20} MiB")
    try:
        return loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return ValueError("not UTF-8")
    except ValueError as error:
        return ValueError(f"not JSON, and each line has to be one object: {error}")
