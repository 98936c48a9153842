"""Watch a run's objects while it is killed: no committed object may change, and none may be committed twice.

with Watcher(open_store(place, make=False)) as watcher:
    watcher.commits          # journal objects and rollout files seen so far
    watcher.look_again()     # every object that was seen and is still there has the bytes that it had
watcher.faults               # sentences
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Iterable

from raypoly.core.errors import CorruptData, StorageError
from raypoly.run.store import Store
from raypoly.run.store.step_records import decode

_IMMUTABLE = re.compile(r"^(config\.json|(starts|journal|rollouts|index|lease/epoch-)|checkpoints/(?P<step>[^/]+)/)")
_JOURNAL = re.compile(r"^journal/step-(\d+)/(\d+)\.arrow$")
_COUNTED = re.compile(r"^(journal/|rollouts/step-)")


class CommitWatcher:
    """A thread that lists the store and reads new objects. It misses objects that come and go between two listings."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pause = 0.02 if store.location.folder else 0.3
        self._hashes: dict[str, str] = {}
        self._records: dict[tuple[int, int, str], str] = {}
        self._there: set[str] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self.faults: list[str] = []
        self.times: list[float] = []
        """Of each commit, when it was seen, by `time.monotonic`."""

    @property
    def commits(self) -> int:
        return len(self.times)

    @property
    def objects(self) -> int:
        """Number of different objects seen."""
        return len(self._hashes)

    def __enter__(self) -> CommitWatcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()
        self.look_again()

    def look_again(self) -> None:
        """Read every object of the store, also those seen before."""
        with self._lock:
            self._take(self._committed())

    def _watch(self) -> None:
        while not self._closed.wait(self._pause):
            with self._lock:
                there = set(self._committed())
                self._take(there - self._there)
                self._there = there

    def _committed(self) -> list[str]:
        """Keys of the objects that may never change. A checkpoint's files count once its manifest exists."""
        with contextlib.suppress(StorageError, OSError):  # a folder has gone while it was read
            keys = self._store.list()
            whole = {key.split("/")[1] for key in keys if key.startswith("checkpoints/") and "manifest" in key}
            matches = [(key, _IMMUTABLE.match(key)) for key in keys]
            return [key for key, match in matches if match and (match["step"] is None or match["step"] in whole)]
        return []

    def _take(self, keys: Iterable[str]) -> None:
        for key in keys:
            with contextlib.suppress(StorageError):  # compacted, or an old checkpoint, and deleted meanwhile
                self._compare(key, self._store.read(key))

    def _compare(self, key: str, data: bytes) -> None:
        digest = hashlib.sha256(data).hexdigest()
        if key not in self._hashes:
            self._hashes[key] = digest
            if _COUNTED.match(key):
                self.times.append(time.monotonic())
            self._note_records(key, data)
        elif self._hashes[key] != digest:
            self.faults.append(f"{key} was replaced")
            self._hashes[key] = digest

    def _note_records(self, key: str, data: bytes) -> None:
        match = _JOURNAL.match(key)
        if match is None:
            return
        try:
            records = decode(int(match[1]), int(match[2]), data)
        except CorruptData as error:
            self.faults.append(f"{key} is damaged: {error}")
            return
        for record in records:
            first = self._records.setdefault((record.step, record.slot, record.kind), key)
            if first != key:
                self.faults.append(f"{record.kind} of step {record.step}, slot {record.slot}: in {first} and in {key}")
