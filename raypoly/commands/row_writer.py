"""Write a file of JSON rows, whole or not at all: `NAME.part` while it grows, renamed when it is finished.

    with open_rows("exclude.jsonl") as rows:
        rows.write({"problem_id": "two-sum"})
        rows.finish()
    with open_rows("labels.jsonl", identity) as rows:
        for row in rows.resume(label_the_rest):
            ...
        rows.finish()

With an `identity` the file is resumable: `NAME.part.json` keeps the identity, and a start with an equal one continues
after the rows of the start that was interrupted. Each row goes to the operating system as soon as it is written, so a
killed process loses none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from raypoly.core import __version__
from raypoly.core.errors import StorageError, UsageError
from raypoly.core.whole_files import is_device, write_output
from raypoly.data.formats import files_of
from raypoly.data.formats.long_integers import dumps

Row = Mapping[str, Any]
STDOUT = "-"


def open_rows(out: str | None, identity: Mapping[str, Any] | None = None) -> AbstractContextManager[RowWriter]:
    """A writer to a file, to standard output (`-`), or to nowhere (None).

    `identity` is all that the rows depend on, beside raypoly's version; without it nothing is resumed.
    Raises `UsageError` where the file can't be written.
    """
    if out is None:
        return contextlib.nullcontext(RowWriter(None, ""))
    if out == STDOUT or is_device(Path(out)):
        return _open_stream(out)
    return _open_part_file(Path(out).expanduser().resolve(), identity)


def refuse_overwriting(out: str | None, *inputs: Path) -> None:
    """Raise `UsageError` where the output would replace a file that is read."""
    for file in (file for path in inputs for file in files_of(path)):
        if out not in (None, STDOUT) and os.path.realpath(str(out)) == os.path.realpath(file):
            raise UsageError(f"--out {out} is the file that is read: name another one.")


class RowWriter:
    """A stream of rows. Raises `StorageError` for a row that can't be written; the rows before it stay."""

    def __init__(self, file: BinaryIO | None, name: str, advice: str = "") -> None:
        """`advice`: behind the reason why it can't be written."""
        self._file, self._name, self._advice = file, name, advice

    def resume(
        self, make: Callable[[int], Iterable[Row]], keep: Callable[[Row], bool] = lambda row: True
    ) -> Iterator[Row]:
        """The rows of an interrupted start, then those of `make(their number)`, each written as it is drawn.

        What follows the first row that is cut, or that `keep` says no to, is made anew.
        """
        kept = 0
        for row in self._read_kept(keep):
            kept += 1
            yield row
        for row in make(kept):
            self.write(row)
            yield row

    def write(self, row: Row) -> None:
        line = dumps(row).encode() + b"\n"
        with self._told():
            while line and self._file is not None:  # a full disk takes a part, and says why with the next call
                line = line[self._file.write(line) :]

    def finish(self) -> None:
        """All rows are written."""

    def _read_kept(self, keep: Callable[[Row], bool]) -> Iterator[Row]:
        return iter(())

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise StorageError(f"{self._name} was closed by its reader before all rows were written.") from error
            raise StorageError(f"{self._name} can't be written: {error.strerror}{self._advice}.") from error


class PartFileWriter(RowWriter):
    """A writer to `NAME.part`, which is locked meanwhile."""

    def __init__(self, file: BinaryIO, out: Path, identity: Row | None) -> None:
        kept = "; the rows so far are kept: make room and give the same command again"
        super().__init__(file, f"{out}.part", kept if identity else "")
        self._part, self._out, self._note, self._identity = file, out, Path(f"{out}.part.json"), identity

    def begin(self) -> None:
        """Drop the rows of a start with another identity. Raises `StorageError`."""
        if self._identity is None or self._identity != _read_note(self._note):
            with self._told():
                self._part.truncate(0)
            if self._identity is not None:
                write_output(self._note, json.dumps(self._identity).encode())

    def finish(self) -> None:
        with self._told():
            os.fsync(self._part.fileno())
            Path(self._name).rename(self._out)
            self._note.unlink(missing_ok=True)

    def clean_up(self) -> None:
        """Delete a part that can't be resumed or holds nothing."""
        unwanted = self._identity is None or os.fstat(self._part.fileno()).st_size == 0
        with contextlib.suppress(OSError):
            if unwanted and _is_in_place(self._name, self._part):
                Path(self._name).unlink()
                self._note.unlink(missing_ok=True)

    def _read_kept(self, keep: Callable[[Row], bool]) -> Iterator[Row]:
        end = 0
        with open(self._name, "rb") as lines:
            for line in lines:
                row = _parse_whole(line)
                if row is None or not keep(row):
                    break
                end += len(line)
                yield row
        self._part.truncate(end)


@contextmanager
def _open_part_file(out: Path, identity: Mapping[str, Any] | None) -> Iterator[PartFileWriter]:
    """Raises `UsageError` where the file can't be made or another process writes it."""
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder: name a file in it.")
    name = f"{out}.part"
    try:
        file = open(name, "ab+", buffering=0)  # noqa: SIM115 - closed below, after the clean-up
    except OSError as error:
        raise UsageError(f"{name} can't be written: {error.strerror}; name another file.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = _is_in_place(name, file)
        except OSError:
            locked = False
        if not locked:
            raise UsageError(f"Another process writes {name}: wait for it, or name another file.")
        part = PartFileWriter(file, out, None if identity is None else {"version": __version__, **identity})
        try:
            part.begin()
            yield part
        finally:
            part.clean_up()


def _is_in_place(name: str, file: BinaryIO) -> bool:
    # Between our opening and locking it, its last owner may have renamed it: then the lock is on a finished file.
    try:
        return os.path.samestat(os.stat(name), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


@contextmanager
def _open_stream(out: str) -> Iterator[RowWriter]:
    # A pipe, a terminal or a device: there is nothing to rename.
    try:
        descriptor = os.dup(sys.stdout.fileno()) if out == STDOUT else os.open(out, os.O_WRONLY)
    except OSError as error:
        raise UsageError(f"--out {out} can't be written: {error.strerror}.") from error
    os.set_blocking(descriptor, True)  # another process that shares it may have made it non-blocking
    with open(descriptor, "wb", buffering=0) as file:
        yield RowWriter(file, "standard output" if out == STDOUT else out)


def _parse_whole(line: bytes) -> Row | None:
    """None where the line is cut or no row."""
    with contextlib.suppress(ValueError):
        row = json.loads(line) if line.endswith(b"\n") else None
        return row if isinstance(row, dict) else None
    return None


def _read_note(path: Path) -> Any:
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_bytes())
    return None
