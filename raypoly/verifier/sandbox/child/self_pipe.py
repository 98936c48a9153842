"""What `asyncio` wakes its loop with, made of a pipe: a candidate may not make sockets, not even a pair of its own."""

# A candidate reaches all globals of this file, by `socket.socketpair.__globals__`: so nothing else is in it.

from __future__ import annotations

import os
import socket


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


def install() -> None:
    """Let `socket.socketpair`, by its name in the module, give two ends of a pipe."""
    vars(socket)["socketpair"] = _pair
