"""Ports of this machine that nothing listens on, and those where connections never come to be."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def silent_port() -> Iterator[int]:
    """A port of 127.0.0.1 where packets are lost: whoever connects hears nothing, as its queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waits = stack.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(listener.getsockname())
        yield int(listener.getsockname()[1])
