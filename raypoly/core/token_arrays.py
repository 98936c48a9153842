"""Arrays with a number for each token, kept out of memory: at 4,096 tokens a rollout's are 16 KiB.

kept = TokenArrays([np.zeros(3, np.float32), np.ones(2, np.float32)])
kept[1]                                  # float32 [2], read from the disk again
TokensByPlace({4: np.ones(2)})[4]        # the same by the rollout's place in its group
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import IO, Any, overload

import numpy as np

from raypoly.core.errors import RaypolyError
from raypoly.core.values import Float32

_SEGMENT = 64 << 20
"""Bytes after which another file is begun. One is gone when nothing refers to what it holds."""


class TokenArrays(Sequence[Float32]):
    """float32 [T] of each of N rollouts, in a temporary file without a name. Never changed.

    Raises `RaypolyError` where that file can't be written.
    """

    def __init__(self, arrays: Sequence[Float32]) -> None:
        flat = np.concatenate([np.zeros(0, np.float32), *arrays]).astype(np.float32, copy=False)
        self.lengths = tuple(len(each) for each in arrays)
        """T of each."""
        self._ends = [0, *accumulate(self.lengths)]
        self._segment, self._start = _segments.add(flat.tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # to another process as plain arrays

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> Float32: ...
    @overload
    def __getitem__(self, index: slice) -> list[Float32]: ...
    def __getitem__(self, index: int | slice) -> Float32 | list[Float32]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]  # an IndexError ends a loop over it
        return self._read(self._ends[place], self._ends[place + 1])

    def __iter__(self) -> Iterator[Float32]:
        whole = self._read(0, self._ends[-1])
        yield from np.split(whole, self._ends[1:-1]) if self.lengths else ()

    def _read(self, start: int, end: int) -> Float32:
        return np.frombuffer(self._segment.read(self._start + 4 * start, 4 * (end - start)), np.float32)


class TokensByPlace(Mapping[int, Float32]):
    """float32 [T] of some of a group's rollouts, by their place in it."""

    def __init__(self, arrays: Mapping[int, Float32]) -> None:
        self._numbers = {place: number for number, place in enumerate(arrays)}
        self._arrays = TokenArrays(list(arrays.values()))

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __getitem__(self, place: int) -> Float32:
        return self._arrays[self._numbers[place]]


class _Segment:
    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lives as long as what it holds
        self.size = 0

    def add(self, data: bytes) -> int:
        if (written := self._file.write(data)) != len(data):
            raise OSError(f"only {written} of {len(data)} bytes were written")
        self.size += len(data)
        return self.size - len(data)

    def read(self, start: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, start)


class _Segments:
    def __init__(self) -> None:
        self._current: _Segment | None = None
        self._lock = threading.Lock()

    def add(self, data: bytes) -> tuple[_Segment, int]:
        with self._lock:
            try:
                if self._current is None or self._current.size >= _SEGMENT:
                    self._current = _Segment()
                return self._current, self._current.add(data)
            except OSError as error:
                self._current = None
                raise RaypolyError(
                    f"What each token is worth could not be kept in {tempfile.gettempdir()} "
                    f"({error.strerror or error}): make room there, or set TMPDIR to another folder."
                ) from error


_segments = _Segments()
