"""Other file systems of pyarrow (hdfs://, or one from fsspec). Files are written under another name, then moved.

They have no write that only creates: the store looks before it writes, and the lease writes, waits and reads back.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.fs as pafs

from raypoly.core.errors import UsageError
from raypoly.run.store.backend import Backend, BackendFailure, Missing, NoCondition
from raypoly.run.store.location import Location


class FilesystemBackend(Backend):
    """One folder of a pyarrow file system."""

    conditional = False

    def __init__(self, filesystem: pafs.FileSystem, root: str) -> None:
        self._filesystem, self._root = filesystem, root.rstrip("/")
        self._counter = itertools.count()

    @classmethod
    def at(cls, location: Location) -> FilesystemBackend:
        """The backend of a location. Raises `UsageError` if pyarrow does not know the scheme or can't connect."""
        try:
            return cls(*pafs.FileSystem.from_uri(str(location)))
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UsageError(
                f"run.dir={location.plain} can't be opened by pyarrow ({reason}); "
                "give a folder's path, or s3://, gs:// or az://bucket/prefix."
            ) from error

    def create(self, key: str, data: bytes) -> bool:
        raise NoCondition("a file system of pyarrow's")

    def put(self, key: str, data: bytes) -> None:
        self.upload(key, [data])

    def upload(self, key: str, parts: Iterable[bytes]) -> None:
        path = self._path(key)
        folder, _, name = path.rpartition("/")
        aside = f"{folder}/.{name}.{socket.gethostname()}-{os.getpid()}-{next(self._counter)}.part"
        with self._explained():
            self._filesystem.create_dir(folder, recursive=True)
            with self._filesystem.open_output_stream(aside, compression=None) as stream:
                for part in parts:
                    stream.write(part)
            self._filesystem.move(aside, path)

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        with self._explained(), self._filesystem.open_input_file(self._path(key)) as file:
            data: bytes = file.read() if end is None else file.read_at(end - start, start)
            return data

    def size(self, key: str) -> int | None:
        with self._explained():
            info = self._filesystem.get_file_info(self._path(key))
        return int(info.size) if info.type == pafs.FileType.File else None

    def list_below(self, folder: str) -> Iterator[tuple[str, int]]:
        yield from (
            (info.path.removeprefix(self._root).lstrip("/"), int(info.size))
            for info in self._infos(f"{self._root}/{folder}".rstrip("/"), recursive=True)
            if info.type == pafs.FileType.File and not info.base_name.startswith(".")
        )

    def list_top(self) -> Iterator[str]:
        yield from (info.base_name for info in self._infos(self._root) if not info.base_name.startswith("."))

    def delete(self, key: str) -> None:
        try:
            with self._explained():
                self._filesystem.delete_file(self._path(key))
        except Missing:
            return

    def copy(self, key: str, target: str) -> None:
        self.put(target, self.get(key))

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _infos(self, folder: str, recursive: bool = False) -> list[pafs.FileInfo]:
        with self._explained():
            found: list[pafs.FileInfo] = self._filesystem.get_file_info(
                pafs.FileSelector(folder, recursive=recursive, allow_not_found=True)
            )
            return found

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise Missing from error
        except (OSError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())[:200]
            lasting = isinstance(error, PermissionError)
            raise BackendFailure(
                reason, "make it readable and writable" if lasting else "", transient=not lasting
            ) from error
