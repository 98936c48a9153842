"""A slow, lossy cable: two TAP devices, and a thread that carries frames between them late, or not at all.

Kernels without netem have no other. A TAP device offloads nothing, so frames come whole: no larger than the MTU, with
their checksums.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import threading
import time
from collections.abc import Iterator

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


@contextlib.contextmanager
def slow_cable(ends: tuple[str, str], delay: float, loss: float) -> Iterator[None]:
    """Inside, network devices of these names exist, and what enters one leaves the other `delay` seconds later."""
    taps: list[int] = []
    with contextlib.ExitStack() as stack:
        for name in ends:  # a device is there as long as its descriptor
            taps.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            stack.callback(os.close, taps[-1])
            fcntl.ioctl(taps[-1], _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
        ended = threading.Event()
        thread = threading.Thread(target=_carry, args=(taps, delay, loss, ended), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        yield


def _carry(taps: list[int], delay: float, loss: float, ended: threading.Event) -> None:
    rng, order = random.Random(0), itertools.count()
    waiting: list[tuple[float, int, int, bytes]] = []
    while not ended.is_set():
        until = waiting[0][0] - time.monotonic() if waiting else 0.1
        for tap in select.select(taps, [], [], max(0.0, min(0.1, until)))[0]:
            with contextlib.suppress(OSError):  # the device is not up yet
                frame = os.read(tap, 65_536)
                if rng.random() >= loss:
                    other = taps[1 - taps.index(tap)]
                    heapq.heappush(waiting, (time.monotonic() + delay, next(order), other, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, tap, frame = heapq.heappop(waiting)
            with contextlib.suppress(OSError):  # down, or its queue is full: a frame is lost, as on a cable
                os.write(tap, frame)
