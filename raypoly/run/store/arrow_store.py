"""The store on other file systems of pyarrow (hdfs://, or one from fsspec).

They have no conditional writes: the store looks before it writes, and the lease writes, waits and reads back.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from raypoly.core.errors import UsageError
from raypoly.run.store.location import Location, StorageOptions
from raypoly.run.store.store import RequestFailed, Store, in_parts

_T = TypeVar("_T")


class ArrowStore(Store):
    """Objects as files, written under another name, then moved."""

    conditional = False

    def __init__(self, location: Location, options: StorageOptions) -> None:
        """Raises `UsageError` if pyarrow does not know the scheme or can't connect."""
        super().__init__(location, options.workspace(location), options)
        self._counter = itertools.count()
        try:
            self._filesystem, root = pafs.FileSystem.from_uri(str(location))
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UsageError(
                f"run.dir={location.plain} can't be opened by pyarrow ({reason}); "
                "give a folder's path, or s3://, gs:// or az://bucket/prefix."
            ) from error
        self._root = root.rstrip("/")

    def _do(self, verb: str, key: str, request: Callable[[], _T], changes: bool = False) -> _T:
        def explained() -> _T:
            try:
                return request()
            except pa.ArrowException as error:  # no OSError, unlike the failures of files
                raise RequestFailed(" ".join(str(error).split())[:200]) from error

        return super()._do(verb, key, explained, changes)

    def _create(self, key: str, data: bytes) -> bool:
        raise AssertionError("it has no conditional writes, so nobody asks for one")

    def _put(self, key: str, content: bytes | Path) -> None:
        path = f"{self._root}/{key}"
        folder, _, name = path.rpartition("/")
        aside = f"{folder}/.{name}.{socket.gethostname()}-{os.getpid()}-{next(self._counter)}.part"
        self._filesystem.create_dir(folder, recursive=True)
        with self._filesystem.open_output_stream(aside, compression=None) as stream:
            for part in in_parts(content):
                stream.write(part)
        self._filesystem.move(aside, path)

    def _get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        with self._filesystem.open_input_file(f"{self._root}/{key}") as file:
            data: bytes = file.read() if end is None else file.read_at(end - start, start)
            return data

    def _size(self, key: str) -> int | None:
        info = self._filesystem.get_file_info(f"{self._root}/{key}")
        return int(info.size) if info.type == pafs.FileType.File else None

    def _keys(self, folder: str) -> Iterator[str]:
        for info in self._entries(f"{self._root}/{folder}".rstrip("/"), recursive=True):
            if info.type == pafs.FileType.File:
                yield info.path.removeprefix(self._root).lstrip("/")

    def _names(self) -> Iterator[str]:
        yield from (info.base_name for info in self._entries(self._root))

    def _delete(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self._size(key) is not None:
                self._filesystem.delete_file(f"{self._root}/{key}")

    def _entries(self, folder: str, recursive: bool = False) -> Iterator[pafs.FileInfo]:
        """Without half-written files."""
        selector = pafs.FileSelector(folder, recursive=recursive, allow_not_found=True)
        return (info for info in self._filesystem.get_file_info(selector) if not info.base_name.startswith("."))
