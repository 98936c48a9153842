"""Detection of Ray's death, before Ray ends the driver without a message: half a second after its raylet's death, a
minute after its head's.

    with RayLiveness(lambda why: shutdown.end_without_ray(ray_gone(why), ...)):
        ...
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import ray

from actors.ray_internals import raylet_socket
from raypoly.core.errors import RayGone

EVERY_SECONDS = 2.0
_GONE_SECONDS = 20.0  # A head that can't be reached for this long is gone. A raylet that died never comes back.
_CONNECT_SECONDS = 5.0
_DIED = "its raylet on this machine died"


class RayLiveness:
    def __init__(self, lost: Callable[[str], None], gone_seconds: float = _GONE_SECONDS) -> None:
        self._lost, self._gone_seconds = lost, gone_seconds
        self._over = threading.Event()
        self._head = str(ray.get_runtime_context().gcs_address)
        socket_path = raylet_socket()
        self._raylet = -1 if socket_path is None else _pidfd_of_listener(socket_path)

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch_head, name="ray-head", daemon=True).start()
        if self._raylet >= 0:
            threading.Thread(target=self._watch_raylet, name="ray-raylet", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Raises `RayGone` in place of an error that Ray's death has caused."""
        self._over.set()
        if isinstance(error, Exception) and not isinstance(error, RayGone):
            missing = self._find_missing()
            if missing is not None:
                raise ray_gone(missing) from error

    def _watch_raylet(self) -> None:
        while not self._over.is_set():
            if self._raylet_died(EVERY_SECONDS):
                if not self._over.is_set():
                    self._lost(_DIED)
                return

    def _watch_head(self) -> None:
        seen = time.monotonic()
        while not self._over.wait(EVERY_SECONDS):
            missing = self._find_missing()
            if missing is None:
                seen = time.monotonic()
            elif time.monotonic() - seen > self._gone_seconds and not self._over.is_set():
                self._lost(missing)
                return

    def _raylet_died(self, seconds: float = 0.0) -> bool:
        if self._raylet < 0:
            return False
        poll = select.poll()  # a pidfd becomes readable when its process ends
        poll.register(self._raylet, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def _find_missing(self) -> str | None:
        if self._raylet_died():
            return _DIED
        host, _, port = self._head.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        except OSError as error:
            return f"its head at {self._head} does not answer ({error.strerror or error})"
        return None


def _pidfd_of_listener(path: str) -> int:
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_CONNECT_SECONDS)
            probe.connect(path)
            pid, _, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return os.pidfd_open(pid) if pid > 0 else -1
    except OSError:
        return -1


def ray_gone(why: str) -> RayGone:
    return RayGone(f"Ray is gone: {why}. Everything is committed; resume with the same command.")
