"""Copies files that are written piece by piece (metrics.jsonl, TensorBoard's) to a run in remote storage.

    mirror = Mirror(store, "metrics.jsonl", "tensorboard/")     # fetches the file of an earlier start
    mirror.log(row)     # after the files were written to; every so often they are copied beside training
    mirror.close()

Their content is in the journal too, so nothing is lost if the copy is some seconds behind when a driver dies.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from raypoly.core.errors import RaypolyError
from raypoly.run.store.store import Store

logger = logging.getLogger(__name__)

_EVERY = 15.0
_SHARE = 20
"""Copying takes at most 1/20 of the time."""


class Mirror:
    """Copies of files in a store's workspace; a sink of `raypoly.run.sinks`."""

    def __init__(self, store: Store, file: str, folder: str) -> None:
        """Fetches `file` from the store, to append to it. Of `folder` (ends in a slash) only new files are copied."""
        self._store, self._file, self._folder = store, file, folder
        self._copied: dict[Path, tuple[int, int]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mirror")
        self._running: Future[None] | None = None
        self._next = time.monotonic() + _EVERY
        store.workspace.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(store.workspace / folder, ignore_errors=True)
        target = store.workspace / file
        target.unlink(missing_ok=True)
        if store.exists(file):
            target.write_bytes(store.read(file))
            self._copied[target] = _state(target)

    def log(self, row: Mapping[str, Any]) -> None:
        """Start copying if it is due; returns at once."""
        if time.monotonic() >= self._next and (self._running is None or self._running.done()):
            self._running = self._thread.submit(self._copy)

    def close(self) -> None:
        """Copy the rest. A failure is only logged, since the results are committed."""
        self._thread.submit(self._copy).result()
        self._thread.shutdown()

    def _copy(self) -> None:
        started = time.monotonic()
        try:
            for path in self._files():
                state = _state(path)
                if self._copied.get(path) != state:
                    self._store.put_mutable(path.relative_to(self._store.workspace).as_posix(), path.read_bytes())
                    self._copied[path] = state
        except (RaypolyError, OSError) as error:
            logger.warning("%s could not be copied to %s: %s", self._file, self._store.uri, error)
        took = time.monotonic() - started
        self._next = time.monotonic() + max(_EVERY, _SHARE * took)

    def _files(self) -> Iterator[Path]:
        candidates = (self._store.workspace / self._file, *(self._store.workspace / self._folder).rglob("*"))
        return (path for path in candidates if path.is_file())


def _state(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size
