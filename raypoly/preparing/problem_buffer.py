"""Problems that are set down until they are needed: in memory as long as they are few, else in a file without a name.

    kept = Spool().keep(problem)
    kept.problem                        # read anew each time

So a preparation holds what it says of each problem, and not all of their tests.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
from dataclasses import dataclass, field

from raypoly.values import Problem

MEMORY = 64 << 20
"""Bytes up to which there is no file."""


class ProblemBuffer:
    """A file of problems, in `$TMPDIR`; it goes with the last problem that it keeps."""

    def __init__(self, memory: int | None = None) -> None:
        """`memory`: bytes up to which there is no file; default `MEMORY`."""
        size = MEMORY if memory is None else memory
        self._file = tempfile.SpooledTemporaryFile(max_size=size)  # noqa: SIM115  open as long as a problem is asked for
        self._lock = threading.Lock()

    def keep(self, problem: Problem) -> Kept:
        _ = problem.tests.hash  # once: it travels with the tests
        data = pickle.dumps(problem, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            place = self._file.seek(0, 2)
            self._file.write(data)
        return Kept(self, place, len(data))

    def read(self, place: int, size: int) -> Problem:
        with self._lock:
            self._file.seek(place)
            data = self._file.read(size)
        found: Problem = pickle.loads(data)  # this process wrote it
        return found


@dataclass(frozen=True)
class Kept:
    """Where a problem lies."""

    spool: ProblemBuffer = field(repr=False, compare=False)
    place: int
    size: int

    @property
    def problem(self) -> Problem:
        return self.spool.read(self.place, self.size)
