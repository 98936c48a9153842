"""Parent's end of a child's channel: framed messages under limits of CPU time, with the wall clock as backstop.

A test's clock is the child's CPU time plus its sleep (`sleep_meter.py`). Waiting for a core costs nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raypoly.core.errors import SandboxError
from raypoly.verifier.sandbox.child import plain_data
from raypoly.verifier.sandbox.child.confine import SCRATCH_BYTES, SCRATCH_FILES
from raypoly.verifier.sandbox.sleep_meter import SleepMeter

_HEADER = struct.Struct(">I")
_GREETING = _HEADER.pack(0)
_CREDENTIALS = struct.Struct("3i")
_POLL_SECONDS = 0.1
_RANDOM = random.Random()
_START_SECONDS = 60.0
# Most tests take less than these microseconds: their answers cost no look at how the time was spent.
_AT_ONCE = struct.pack("ll", 0, 2000)
# fewer bytes never fill a socket, however small their pieces
_FEW = 256
# bytes of one message that surely fill a socket (a result has at most some 110 times as many), so that the child waits
# for us
_BLOCKS = 150_000


class ChildGone(Exception):
    """The child closed its end: it died."""


class OutOfTime(Exception):
    """The child used up its time."""


class Garbled(Exception):
    """The child's bytes are no message, or too many."""


class ScratchFull(Garbled):
    """The child filled its scratch folder."""


@dataclass(frozen=True)
class Clock:
    """CPU (or sleep) seconds for one message, and for the child's whole life."""

    per_message: float
    in_all: float

    @property
    def backstop(self) -> float:
        """Wall seconds to wait for the child in all: far more than `in_all` needs under this machine's load."""
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        return (30 + 3 * self.in_all) * max(1.0, load)


class Child:
    """One confined process."""

    def __init__(self, channel: socket.socket, number: int, clock: Clock, scratch: Path | None = None) -> None:
        """`scratch`: a folder to watch, where no file system of its own bounds it."""
        self.number = number
        self.channel = channel
        """Of a template: its control socket, once its prelude has run."""
        self._clock = clock
        self.channel.setblocking(True)
        self.channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _AT_ONCE)
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._scratch, self._looked = scratch, time.monotonic()
        self._meter: SleepMeter | None = None
        # wall seconds in which we waited for it: what another does meanwhile is not its time
        self._waited = 0.0
        # seconds spent when its last message was taken; CPU time when last read
        self._taken = self._cpu = 0.0
        self._pid = self._pidfd = -1

    def send(self, *messages: bytes) -> None:
        """Queue messages. `receive` sends what could not leave at once."""
        for message in messages:
            self._outgoing += _HEADER.pack(len(message)) + message
        self._flush()

    def receive(self) -> bytes:
        """The next message. Raises `ChildGone`, `OutOfTime`, `Garbled` or `ScratchFull`."""
        if self._pid >= 0 and not self._incoming and not self._outgoing:
            self._read(1 << 16, 0)
        while (message := self._complete()) is None:
            self._wait()
        return message

    def answer(self, nonce: bytes = b"") -> Any:
        """The next message's content; None if none comes in time and behind the nonce."""
        try:
            message = self.receive()
            return plain_data.decode(message[len(nonce) :]) if message.startswith(nonce) else None
        except (ChildGone, OutOfTime, Garbled, plain_data.Malformed):
            return None

    def allow(self, seconds: float) -> None:
        """A new clock: so many seconds from now on."""
        self._clock = Clock(seconds, self.spent() + seconds)

    def stream(self, limit: int) -> bytes:
        """All bytes until the child closes its end. Raises `OutOfTime`, or `Garbled` beyond `limit` bytes."""
        while True:
            try:
                self._wait()
            except ChildGone:
                return bytes(self._incoming)
            if len(self._incoming) > limit:
                raise Garbled

    def spent(self) -> float:
        """Seconds of CPU and of sleep so far."""
        with contextlib.suppress(OSError):  # it is gone: the next read says so
            self._cpu = time.clock_gettime((~self._pid << 3) | 2)
        return self._cpu + (0.0 if self._meter is None else self._meter.slept)

    def ends_by_itself(self) -> bool:
        """Whether the process ends shortly after it closed its channel."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(2000))

    def kill(self) -> None:
        """Send SIGKILL. A child has no descendants."""
        with contextlib.suppress(SandboxError):
            self._await_greeting()
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
            self._pidfd = -1
        self.channel.close()

    def _await_greeting(self) -> None:
        # with the child's first, empty message the kernel reports its process id, which stays valid until the forker
        # reaps it
        if self._pid >= 0 or self.channel.fileno() < 0:
            return
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        if not poll.poll(1000 * _START_SECONDS * max(1.0, os.getloadavg()[0])):
            raise SandboxError("A sandbox child did not start within a minute: the machine is overloaded.")
        try:
            data, ancillary, _, _ = self.channel.recvmsg(_HEADER.size, socket.CMSG_SPACE(_CREDENTIALS.size))
        except OSError:  # it was killed before it could greet
            data, ancillary = b"", []
        if data != _GREETING or not ancillary:
            raise SandboxError("A sandbox child could not be started and confined, as it could before.")
        self._pid = int(_CREDENTIALS.unpack(ancillary[0][2][: _CREDENTIALS.size])[0])
        try:
            self._pidfd = os.pidfd_open(self._pid)
        except OSError as error:  # its template was killed, and it with it
            raise SandboxError(f"A sandbox child is gone before it began: {error}") from error
        self._meter = SleepMeter(self._pid)

    def _wait(self) -> None:
        """Read what arrives next."""
        self._await_greeting()
        assert self._meter is not None
        poll = select.poll()
        asked, spent = time.monotonic(), self.spent()
        self._meter.start()
        while True:
            self._look_at_scratch()
            # of the message's time only what was spent since the last one was taken
            left = min(self._clock.per_message - (spent - self._taken), self._clock.in_all - spent)
            if left <= 0 or self._waited > self._clock.backstop:
                raise OutOfTime
            poll.register(self.channel, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
            # no child can tell when it will be looked at
            pause = max(1, 1000 * min(left, _POLL_SECONDS) * _RANDOM.uniform(0.5, 1.0))
            events = poll.poll(pause)
            if any(event & select.POLLOUT for _, event in events):
                self._flush()
            arrived = self._read()
            wall, cpu = time.monotonic() - asked, self.spent() - spent
            self._waited += wall
            # behind more bytes the child may have waited for us all the time: nothing is charged then
            if arrived < _BLOCKS:
                late = max(0.0, wall - pause / 1000)
                self._meter.watch(wall, cpu, late, arrived > 0, arrived >= _FEW or self._is_complete())
            if arrived:
                return
            asked, spent = asked + wall, self.spent()

    def _look_at_scratch(self) -> None:
        if self._scratch is not None and time.monotonic() - self._looked > _POLL_SECONDS:
            if not _is_small(self._scratch):
                raise ScratchFull
            self._looked = time.monotonic()

    def _is_complete(self) -> bool:
        if len(self._incoming) < _HEADER.size:
            return False
        (size,) = _HEADER.unpack_from(self._incoming)
        return len(self._incoming) >= _HEADER.size + int(size)

    def _complete(self) -> bytes | None:
        """The next message, if it has arrived. Raises `Garbled` if it claims to be too long, `OutOfTime`."""
        if len(self._incoming) < _HEADER.size:
            return None
        (size,) = _HEADER.unpack_from(self._incoming)
        if size > plain_data.MAX_BYTES + 1024:
            raise Garbled
        if len(self._incoming) < _HEADER.size + size:
            return None
        message = bytes(self._incoming[_HEADER.size : _HEADER.size + size])
        del self._incoming[: _HEADER.size + size]
        self._taken = self.spent()
        if self._taken > self._clock.in_all:
            raise OutOfTime
        return message

    def _read(self, most: int = 1 << 20, flags: int = socket.MSG_DONTWAIT) -> int:
        try:
            part = self.channel.recv(most, flags)
        except BlockingIOError:
            return 0
        except OSError:
            part = b""
        if not part:
            raise ChildGone
        self._incoming += part
        return len(part)

    def _flush(self) -> None:
        try:
            while self._outgoing:
                sent = self.channel.send(self._outgoing[: 1 << 20], socket.MSG_DONTWAIT)
                del self._outgoing[:sent]
        except BlockingIOError:
            return  # the rest follows when the child has read some
        except OSError:
            self._outgoing.clear()  # it is gone: the next read says so


def _is_small(folder: Path) -> bool:
    # links are not followed
    count = size = 0
    folders = [str(folder)]
    while folders:
        try:
            for entry in os.scandir(folders.pop()):
                count += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                if count > SCRATCH_FILES or size > SCRATCH_BYTES:
                    return False
        except FileNotFoundError:
            continue  # it was removed meanwhile
        except OSError:
            return False  # an unreadable folder counts as full
    return True
