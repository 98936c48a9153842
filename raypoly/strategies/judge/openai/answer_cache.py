"""The judge's paid answers on disk, by question: shared by runs, arms, evaluations and processes.

    cache = AnswerCache(folder, limit_mib=256)
    cache.put(key, {"3f2a...": AssignedCluster(1, "heap")})
    cache.get(key)                                       # None where nobody asked yet

One SQLite file with a write-ahead log, which a kill at any moment leaves sound. It holds hashes, ids and strategy
names, never a program or a key. A broken cache never stops a judge: it is warned about once, and then there is none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raypoly.core.caches import cache_root
from raypoly.core.config import JudgeConfig
from raypoly.core.errors import StorageError
from raypoly.strategies.judge.openai.judge_reply import AssignedCluster

Answer = Mapping[str, AssignedCluster]

_LOG = logging.getLogger(__name__)
_FILE = "answers.sqlite"
_TOUCH_SECONDS = 3600.0  # seconds after which a use is written down again: reading should seldom write
_PRUNE_EVERY = 64
_KEEP = 0.9  # share of the limit that pruning leaves
_OVERHEAD = 160  # bytes of a row beside its answer


def cache_folder(cache_dir: str | None) -> Path:
    """Where answers are kept: `judge.cache_dir`, else `judge` in the user's caches."""
    return cache_root() / "judge" if cache_dir is None else Path(cache_dir).expanduser().absolute()


def cache_key(*parts: str) -> str:
    """SHA-256 over the parts of a question, which can't run into each other."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class AnswerCache:
    """Answers up to a size, the least recently used going first; threads may share it."""

    def __init__(self, folder: Path, limit_mib: float) -> None:
        self.path = folder / _FILE
        self.limit = int(limit_mib * (1 << 20))
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._puts = 0
        self.failures = 0
        if self.limit > 0:
            try:
                self._open()
            except (sqlite3.Error, OSError) as error:
                self._note_failure(error)
            self._prune()

    def get(self, key: str) -> dict[str, AssignedCluster] | None:
        """The answer by program hash; None where there is none that can be read."""
        for answer, used in self._run("SELECT answer, used FROM answers WHERE key = ?", key):
            if time.time() - used > _TOUCH_SECONDS:
                self._run("UPDATE answers SET used = ? WHERE key = ?", time.time(), key)
            with suppress(TypeError, ValueError, AttributeError):
                found = json.loads(answer).items()
                return {name: AssignedCluster(int(cluster), str(strategy)) for name, (cluster, strategy) in found}
        return None

    def put(self, key: str, answer: Answer) -> None:
        """Keep an answer, in the file when this returns."""
        text = json.dumps({name: [found.cluster, found.strategy] for name, found in answer.items()})
        size = len(text) + _OVERHEAD
        self._run("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", key, text, size, time.time())
        self._puts += 1
        if self._puts % _PRUNE_EVERY == 0:
            self._prune()

    def size(self) -> tuple[int, int]:
        """(answers, bytes)."""
        count, total = next(iter(self._run("SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM answers")), (0, 0))
        return count, total

    def clear(self) -> None:
        self._run("DELETE FROM answers")

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._connection = self._connected()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):  # locked, full or read-only: the file may well be sound
                raise
            aside = self.path.with_name(f"{_FILE}.damaged-{time.time_ns()}")
            self.path.rename(aside)
            told = "The judge's cache %s is damaged (%s): it is kept as %s and begun anew."
            _LOG.warning(told, self.path, error, aside)
            self._connection = self._connected()

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            # A commit that waits for no disk survives kill -9, and answers that come together don't queue for it.
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS answers"
                " (key TEXT PRIMARY KEY, answer TEXT NOT NULL, bytes INTEGER NOT NULL, used REAL NOT NULL)"
                " WITHOUT ROWID"
            )
            connection.execute("CREATE INDEX IF NOT EXISTS by_use ON answers (used)")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _run(self, statement: str, *values: object) -> list[Any]:
        """The rows of one statement; none where the cache can't be used."""
        with self._lock:
            try:
                return [] if self._connection is None else self._connection.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                self._note_failure(error)
                return []

    def _note_failure(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            _LOG.warning("The judge's cache %s can't be used (%s): answers are asked for anew.", self.path, error)

    def _prune(self) -> None:
        total = self.size()[1]
        if total <= self.limit:
            return
        for key, size in self._run("SELECT key, bytes FROM answers ORDER BY used"):
            self._run("DELETE FROM answers WHERE key = ?", key)
            total -= size
            if total <= _KEEP * self.limit:
                return


@dataclass
class _Flight:
    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: int = 0


class InFlightQuestions:
    """One thread at a time for each question: whoever asks the same meanwhile finds the answer in the cache.

    with in_flight.alone(key):
        answer = cache.get(key) or ask_and_keep(key)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[str, _Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    @contextmanager
    def alone(self, key: str) -> Iterator[None]:
        with self._lock:
            flight = self._flights.setdefault(key, _Flight())
            flight.threads += 1
        try:
            with flight.lock:
                yield
        finally:
            with self._lock:
                flight.threads -= 1
                if not flight.threads:
                    del self._flights[key]


def describe_cache(config: JudgeConfig, clear: bool = False) -> str:
    """One line about the kept answers, which `clear` deletes. Raises `StorageError`."""
    folder = cache_folder(config.cache_dir)
    closed = AnswerCache(folder, limit_mib=0)
    if not closed.path.is_file():
        return f"{closed.path}: no answers are kept."
    # opened without a real limit: to look at a cache must not prune it
    cache = AnswerCache(folder, limit_mib=1 << 20)
    try:
        answers, size = cache.size()
        if clear:
            cache.clear()
        if cache.failures:
            raise StorageError(f"{cache.path} can't be used as the judge's cache: see judge.cache_dir.")
    finally:
        cache.close()
    what = f"{answers:,} answers, {size / (1 << 20):.1f} MiB of {config.cache_mib} MiB"
    return f"{cache.path}: {what}" + (" forgotten." if clear else ".")
