"""What a candidate finds in place of calls that the sandbox refuses, or that would take all of its memory."""

# A candidate reaches all globals of this file, by `socket.socketpair.__globals__`: so nothing else is in it.

from __future__ import annotations

import _multiprocessing  # type: ignore[import-not-found]
import _thread
import builtins
import io
import os
import resource
import socket
import threading
from collections.abc import Callable
from typing import Any

# A thread's stack is address space, which counts as memory. Recursion in Python alone takes nearly none of it.
_LARGEST_STACK = 256 << 20
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2, "/dev/fd/0": 0, "/proc/self/fd/0": 0}
_open, _os_open, _set_stack = io.open, os.open, _thread.stack_size
_get_limit, _set_limit = resource.getrlimit, resource.setrlimit
_asked = [0]
_stack_limit: list[tuple[int, int]] = []


class _End:
    """One end of a pipe, with the methods of a socket that an event loop calls."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def fileno(self) -> int:
        return self._descriptor

    def recv(self, size: int) -> bytes:
        return os.read(self._descriptor, size)

    def send(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def close(self) -> None:
        os.close(self._descriptor)


def _pair() -> tuple[_End, _End]:
    reads, writes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    return _End(reads), _End(writes)


class _Semaphore:
    """Of one process, as `multiprocessing.pool.ThreadPool` asks for one that could be shared."""

    SEM_VALUE_MAX = (1 << 31) - 1
    handle, name = 0, None

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> None:
        self._lock: Any = threading.Semaphore(value) if kind else threading.RLock()

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        return bool(self._lock.acquire(block) if timeout is None or not block else self._lock.acquire(True, timeout))

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _stack_size(size: int = 0, /) -> int:
    _set_stack(min(size, _LARGEST_STACK))
    before, _asked[0] = _asked[0], size
    return before


def _setrlimit(kind: int, limits: Any, /) -> None:
    # the stack's own limit stays, which is below the gap that the kernel left under it
    if kind != resource.RLIMIT_STACK:
        return _set_limit(kind, limits)
    soft, hard = map(int, limits)
    _stack_limit[:] = [(soft, hard)]
    return None


def _getrlimit(kind: int, /) -> tuple[int, int]:
    return _stack_limit[0] if kind == resource.RLIMIT_STACK and _stack_limit else _get_limit(kind)


def _stream(file: Any) -> int | None:
    try:
        return _STREAMS.get(os.fspath(file))
    except TypeError:  # a descriptor
        return None


def open(file: Any, *args: Any, **kwargs: Any) -> Any:
    number = _stream(file)
    return _open(file if number is None else os.dup(number), *args, **kwargs)


def _open_descriptor(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
    number = _stream(path)
    return _os_open(path, flags, *args, **kwargs) if number is None else os.dup(number)


_STAND_INS: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (socket, "socketpair", _pair),  # the event loop of `asyncio` wakes itself by one
    (_multiprocessing, "SemLock", _Semaphore),
    (threading, "stack_size", _stack_size),
    (_thread, "stack_size", _stack_size),
    (resource, "setrlimit", _setrlimit),
    (resource, "getrlimit", _getrlimit),
    (builtins, "open", open),  # /proc, where /dev/stdin leads to, is in no tree of ours
    (io, "open", open),
    (os, "open", _open_descriptor),
)


def install() -> None:
    for module, name, stand_in in _STAND_INS:
        setattr(module, name, stand_in)
