"""Try to break out, from inside a child: what succeeds is a missing layer."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

_SOCKETS = (
    (socket.AF_INET, socket.SOCK_STREAM),
    (socket.AF_INET, socket.SOCK_DGRAM),
    (socket.AF_UNIX, socket.SOCK_STREAM),
)


def breaches(parent: int, secret: str) -> list[str]:
    """Names of the probes that got through. `parent`: a process to attack; `secret`: a file not to be read."""
    probes: dict[str, Callable[[], object]] = {
        "read a file outside": lambda: _touch(secret, os.O_RDONLY),
        "read a file of the machine's": lambda: _touch("/etc/passwd", os.O_RDONLY),
        "write a file outside": lambda: _touch(secret + ".breach", os.O_WRONLY | os.O_CREAT),
        "list a folder outside": lambda: os.listdir(os.path.dirname(secret)),
        "read another process's environment": lambda: _touch(f"/proc/{parent}/environ", os.O_RDONLY),
        "open another process's memory": lambda: _touch(f"/proc/{parent}/mem", os.O_RDONLY),
        "signal another process": lambda: os.kill(parent, 0),
        "signal its own parent": lambda: os.kill(os.getppid() or 1, 0),
        "open a socket": lambda: [socket.socket(*kind) for kind in _SOCKETS],
        "make a pair of sockets": socket.socketpair,
        "start a program": _start_a_program,
        "fork": _fork,
        "become root": lambda: os.setuid(0) if os.getuid() else os.setuid(1),
        "raise its limits": _raise_limits,
    }
    through = []
    for name, probe in probes.items():
        with contextlib.suppress(OSError, ValueError, PermissionError):
            probe()
            through.append(name)
    return through


def _start_a_program() -> None:
    # where starting is forbidden the name is never looked up
    try:
        os.execv("/nowhere/program", ["program"])
    except FileNotFoundError:
        return


def _touch(path: str, how: int) -> None:
    os.close(os.open(path, how))


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _raise_limits() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU))
