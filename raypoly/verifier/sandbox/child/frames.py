"""Messages on a channel: a length and that many bytes. A process whose other side is gone ends.

The calls are bound here once: a candidate that replaces `os.write` replaces it for itself.
"""

from __future__ import annotations

from os import _exit, read, write
from struct import Struct

_HEADER = Struct(">I")


def receive(channel: int) -> bytes:
    (size,) = _HEADER.unpack(_exactly(channel, _HEADER.size))
    return _exactly(channel, size)


def send(channel: int, message: bytes) -> None:
    data = memoryview(_HEADER.pack(len(message)) + message)
    while data:
        try:
            data = data[write(channel, data) :]
        except OSError:
            _exit(1)


def _exactly(channel: int, size: int) -> bytes:
    parts = []
    while size:
        try:
            part = read(channel, min(size, 1 << 20))
        except OSError:
            part = b""
        if not part:
            _exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
