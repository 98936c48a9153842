"""Write a file of JSON rows, whole or not at all: `NAME.part` while it grows, renamed when it is finished.

    with open_rows("exclude.jsonl") as rows:
        rows.write({"problem_id": "two-sum"})
        rows.finish()

With an `identity` the file is resumable: `NAME.part.json` keeps the identity, and a start with an equal one continues
behind the rows of the start that was interrupted. Each row goes to the operating system as soon as it is written, so a
killed process loses none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from raypoly.core import __version__
from raypoly.core.errors import StorageError, UsageError
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
    if out == STDOUT or _is_special(Path(out)):
        return _open_stream(out)
    return PartFileWriter.open(Path(out), None if identity is None else {"version": __version__, **identity})


def refuse_overwriting(out: str | None, *inputs: Path) -> None:
    """Raise `UsageError` where the output would replace a file that is read."""
    for file in (file for path in inputs for file in files_of(path)):
        if out not in (None, STDOUT) and os.path.realpath(str(out)) == os.path.realpath(file):
            raise UsageError(f"--out {out} is the file that is read: name another one.")


class RowWriter:
    """A stream of rows. Raises `StorageError` for a row that can't be written; the rows before it stay."""

    def __init__(self, file: BinaryIO | None, name: str) -> None:
        self._file, self._name = file, name

    def read_kept(self) -> Iterator[Row]:
        """The rows that an interrupted start left. Read them once, before the first `write`."""
        return iter(())

    def write(self, row: Row) -> None:
        """Append a row."""
        line = dumps(row).encode() + b"\n"
        try:
            while line and self._file is not None:  # a full disk takes a part, and says why with the next call
                line = line[self._file.write(line) :]
        except OSError as error:
            raise StorageError(self._describe(error)) from error

    def finish(self) -> None:
        """Call it when all rows are written."""

    def _describe(self, error: OSError) -> str:
        if error.errno == errno.EPIPE:
            return f"{self._name} was closed by its reader before all rows were written."
        return f"{self._name} can't be written: {error.strerror}."


class PartFileWriter(RowWriter):
    """A writer to `NAME.part`, which is locked meanwhile."""

    def __init__(self, file: BinaryIO, out: Path, identity: Row | None) -> None:
        super().__init__(file, f"{out}.part")
        self._part_file = file
        self._out, self._part, self._note = out, Path(f"{out}.part"), Path(f"{out}.part.json")
        self._identity = identity
        self._resumes = identity is not None and identity == _read_note(self._note)

    @classmethod
    @contextmanager
    def open(cls, out: Path, identity: Row | None) -> Iterator[PartFileWriter]:
        """Raises `UsageError` where the file can't be made or another process writes it."""
        out = out.expanduser().resolve()
        if out.is_dir():
            raise UsageError(f"--out {out} is a folder: name a file in it.")
        try:
            file = open(f"{out}.part", "ab+", buffering=0)  # noqa: SIM115 - closed below, after the clean-up
        except OSError as error:
            raise UsageError(f"{out}.part can't be written: {error.strerror}; name another file.") from error
        with file:
            part = cls(file, out, identity)
            if not part._lock():
                raise UsageError(f"Another process writes {out}.part: wait for it, or name another file.")
            try:
                part._prepare()
                yield part
            finally:
                part._clean_up()

    def read_kept(self) -> Iterator[Row]:
        """Whole rows from the start on; what follows them is cut off."""
        end = 0
        if self._resumes:
            with self._part.open("rb") as lines:
                for line in lines:
                    row = _parse_whole(line)
                    if row is None:
                        break
                    end += len(line)
                    yield row
        self._part_file.truncate(end)

    def finish(self) -> None:
        """Move the file to its name."""
        try:
            os.fsync(self._part_file.fileno())
            self._part.rename(self._out)
            self._note.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(self._describe(error)) from error

    def _lock(self) -> bool:
        """Whether the file is ours and still has this name: its last owner may just have renamed it."""
        try:
            fcntl.flock(self._part_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return self._is_in_place()

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._part), os.fstat(self._part_file.fileno()))
        except FileNotFoundError:
            return False

    def _prepare(self) -> None:
        """Unless this start resumes another: begin without rows, and note the identity."""
        if self._resumes:
            return
        try:
            self._part_file.truncate(0)
            if self._identity is not None:
                beside = self._note.with_suffix(".new")
                beside.write_text(json.dumps(self._identity))
                beside.rename(self._note)
        except OSError as error:
            raise StorageError(self._describe(error)) from error

    def _clean_up(self) -> None:
        """Delete a part that can't be resumed, or that holds nothing."""
        unwanted = self._identity is None or os.fstat(self._part_file.fileno()).st_size == 0
        with contextlib.suppress(OSError):
            if unwanted and self._is_in_place():
                self._part.unlink()
                self._note.unlink(missing_ok=True)

    def _describe(self, error: OSError) -> str:
        more = "; the rows so far are kept: make room and give the same command again" if self._identity else ""
        return f"{self._name} can't be written: {error.strerror}{more}."


@contextmanager
def _open_stream(out: str) -> Iterator[RowWriter]:
    """A pipe, a terminal or a device: there is nothing to rename."""
    name = "standard output" if out == STDOUT else out
    try:
        descriptor = os.dup(sys.stdout.fileno()) if out == STDOUT else os.open(out, os.O_WRONLY)
    except OSError as error:
        raise UsageError(f"--out {out} can't be written: {error.strerror}.") from error
    os.set_blocking(descriptor, True)  # another process that shares it may have made it non-blocking
    with open(descriptor, "wb", buffering=0) as file:
        yield RowWriter(file, name)


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _parse_whole(line: bytes) -> Row | None:
    """The row of a line; None where the line is cut or no row."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _read_note(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
