"""Files of rows that are whole or not there: `NAME.part` while they grow, renamed when they are done.

    with Rows.opened("exclude.jsonl") as rows:
        rows.write({"problem_id": "two-sum"})
        rows.done()

`resumable` goes on behind the rows of a start that was interrupted, where `NAME.part.json` says that it was asked for
the same. Each row goes to the operating system as soon as it is written, so a killed process loses none.
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
from typing import Any, BinaryIO, Self

from raypoly.errors import StorageError, UsageError
from raypoly.problems.formats.long_integers import dumps

Row = Mapping[str, Any]
STDOUT = "-"


class RowWriter:
    """Where rows go. What can't be written is a `StorageError`; what is there by then stays."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name

    @classmethod
    def opened(cls, out: str) -> AbstractContextManager[RowWriter]:
        """A file (`-`: standard output) that is written anew. Raises `UsageError` where it can't be."""
        return cls._stream(out) if out == STDOUT or _special(Path(out)) else PartFileWriter.started(Path(out), None)

    @classmethod
    def resumable(cls, out: str, identity: Mapping[str, Any]) -> AbstractContextManager[RowWriter]:
        """The same, behind the rows that an interrupted start of the same identity left."""
        return cls._stream(out) if out == STDOUT or _special(Path(out)) else PartFileWriter.started(Path(out), identity)

    @classmethod
    @contextmanager
    def _stream(cls, out: str) -> Iterator[Self]:
        """A pipe, a terminal, a device: nothing to rename."""
        name = "standard output" if out == STDOUT else out
        try:
            descriptor = os.dup(sys.stdout.fileno()) if out == STDOUT else os.open(out, os.O_WRONLY)
        except OSError as error:
            raise UsageError(f"--out {out} can't be written: {error.strerror}.") from error
        os.set_blocking(descriptor, True)  # whoever shares it may have chosen otherwise
        with open(descriptor, "wb", buffering=0) as file:
            yield cls(file, name)

    def kept(self) -> Iterator[Row]:
        """The rows that an interrupted start left; read once, before the first `write`."""
        return iter(())

    def write(self, row: Row) -> None:
        """One more row."""
        line = dumps(row).encode() + b"\n"
        try:
            while line:  # a disk that fills up takes a part, and says why with the next
                line = line[self._file.write(line) :]
        except OSError as error:
            raise StorageError(self._trouble(error)) from error

    def done(self) -> None:
        """All rows are written."""

    def _trouble(self, error: OSError) -> str:
        if error.errno == errno.EPIPE:
            return f"{self._name} was closed by its reader before all rows were written."
        return f"{self._name} can't be written: {error.strerror}."


class PartFileWriter(RowWriter):
    """`NAME.part`, locked while it is written."""

    def __init__(self, file: BinaryIO, out: Path, identity: Mapping[str, Any] | None) -> None:
        super().__init__(file, f"{out}.part")
        self._out, self._part, self._note = out, Path(f"{out}.part"), Path(f"{out}.part.json")
        self._identity = identity
        self._resumes = identity is not None and identity == _read_note(self._note)

    @classmethod
    @contextmanager
    def started(cls, out: Path, identity: Mapping[str, Any] | None) -> Iterator[PartFileWriter]:
        """Raises `UsageError` where the file can't be made or another process writes it."""
        out = out.expanduser().resolve()
        if out.is_dir():
            raise UsageError(f"--out {out} is a folder: name a file in it.")
        try:
            file = open(f"{out}.part", "ab+", buffering=0)  # noqa: SIM115 - closed below, with what else has to happen
        except OSError as error:
            raise UsageError(f"{out}.part can't be written: {error.strerror}; name another file.") from error
        with file:
            part = cls(file, out, identity)
            if not part._locked():
                raise UsageError(f"Another process writes {out}.part: wait for it, or name another file.")
            try:
                part._prepare()
                yield part
            finally:
                part._leave()

    def kept(self) -> Iterator[Row]:
        """Whole rows from the start on; the file ends behind them."""
        end = 0
        if self._resumes:
            with self._part.open("rb") as lines:
                for line in lines:
                    row = _parsed(line)
                    if row is None:
                        break
                    end += len(line)
                    yield row
        self._file.truncate(end)

    def done(self) -> None:
        """Move the file to its name."""
        try:
            os.fsync(self._file.fileno())
            self._part.rename(self._out)
            self._note.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(self._trouble(error)) from error

    def _locked(self) -> bool:
        """Whether the file is ours, and still the one under this name: its last owner may just have renamed it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return self._in_place()

    def _in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._part), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def _prepare(self) -> None:
        """Unless it goes on, begin with no row and with a note of what is asked for."""
        if self._resumes:
            return
        try:
            self._file.truncate(0)
            if self._identity is not None:
                beside = self._note.with_suffix(".new")
                beside.write_text(json.dumps(self._identity))
                beside.rename(self._note)
        except OSError as error:
            raise StorageError(self._trouble(error)) from error

    def _leave(self) -> None:
        """What can't be gone on from, or holds nothing, goes."""
        unwanted = self._identity is None or os.fstat(self._file.fileno()).st_size == 0
        with contextlib.suppress(OSError):
            if unwanted and self._in_place():
                self._part.unlink()
                self._note.unlink(missing_ok=True)

    def _trouble(self, error: OSError) -> str:
        more = "; the rows so far are kept: make room and give the same command again" if self._identity else ""
        return f"{self._name} can't be written: {error.strerror}{more}."


def _special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _parsed(line: bytes) -> Row | None:
    """A row, None where the line is not a whole one."""
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
