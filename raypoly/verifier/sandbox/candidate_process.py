"""One candidate in its process: code is loaded once, then tests run. Expected values stay in the parent."""

from __future__ import annotations

import os
from typing import Any

from raypoly.core.values import Status
from raypoly.verifier.sandbox.channel import ChildGone, Clock, Garbled, OutOfTime, ScratchFull
from raypoly.verifier.sandbox.child import plain_data
from raypoly.verifier.sandbox.child.confine import SCRATCH_BYTES, SCRATCH_FILES
from raypoly.verifier.sandbox.child.object_values import Maker
from raypoly.verifier.sandbox.outcome import TestStopped
from raypoly.verifier.sandbox.zygote_client import ChildExit, Forker, stop_of_exit

NONCE = 16
OBSERVING_SECONDS = 1.0
"""CPU seconds to find out how a program works by running it."""
_OVER: dict[str, Status] = {"steps": "timeout", "elements": "memory", "depth": "error"}


LAST_WORDS = 1 << 16
"""Most bytes of a message about how a start or a script ended; decoding more takes seconds."""


class CandidateProcess:
    """Methods that wait raise `TestStopped` if the program stops, `SandboxError` if the sandbox failed."""

    def __init__(self, forker: Forker, clock: Clock, entry_point: str, code: str, counted: bool) -> None:
        """`counted`: some test has a budget."""
        self._clock, self._forker = clock, forker
        self._nonce = os.urandom(NONCE)
        self._child = forker.fork(clock.in_all, clock)
        role = ("candidate", self._nonce, entry_point, counted)
        self._child.send(plain_data.pack(role), code.encode("utf-8", "surrogatepass"))
        self._ended: ChildExit | None = None
        self.parses = True

    def load(self) -> None:
        message = self.message()
        if len(message) > LAST_WORDS or self._decoded(message)[0] != "ready":
            raise _garbled()

    def send(self, test: bytes) -> None:
        self._child.send(test)

    def message(self) -> bytes:
        """The next message, believed only behind the nonce."""
        try:
            message = self._child.receive()
        except OutOfTime:
            limit = self._clock.per_message
            raise TestStopped("timeout", f"more than {limit:g} s of CPU", by_clock=True) from None
        except ScratchFull:
            raise scratch_full_stop() from None
        except Garbled:
            raise _garbled() from None
        except ChildGone:
            if not self._child.ends_by_itself():
                raise TestStopped("error", "the program closed the channel of its results") from None
            raise stop_of_exit(self.end(), self._clock) from None
        if message[:NONCE] != self._nonce:
            raise _garbled()
        return message[NONCE:]

    def answer(self, message: bytes, make: Maker = plain_data.comparable) -> tuple[Any, Any, Any]:
        """(result, arguments after the call, counts) of a test."""
        reply = self._decoded(message, make)
        if reply[0] != "ok" or len(reply) != 4:
            raise _garbled()
        return reply[1], reply[2], reply[3]

    def observed(self, question: tuple[Any, ...]) -> Any:
        """What evidence's module finds out in this process, after the tests: `ELSEWHERE` if it is to be a new one's."""
        self._child.allow(OBSERVING_SECONDS)
        self._child.send(b"", plain_data.pack(question))
        return self._child.answer(self._nonce)

    def spent(self) -> float:
        return self._child.spent()

    def end(self) -> ChildExit:
        """Kill and reap the process. Call it once."""
        if self._ended is None:
            self._ended = self._forker.reap(self._child)
        return self._ended

    def _decoded(self, message: bytes, make: Maker = plain_data.comparable) -> tuple[Any, ...]:
        try:
            reply = plain_data.decode(message, make)
        except plain_data.Malformed:
            raise _garbled() from None
        if type(reply) is not tuple or not reply or type(reply[0]) is not str:
            raise _garbled()
        if reply[0] not in ("ready", "ok"):
            self.parses = reply[0] != "syntax"
            raise stop_of_reply(reply)
        return reply


def stop_of_reply(reply: tuple[Any, ...]) -> TestStopped:
    if not all(type(word) is str or (type(word) is int and abs(word) < 1 << 63) for word in reply[1:]):
        return _garbled()  # a longer number has no text
    kind, words = reply[0], [str(word) for word in reply[1:]]
    if kind == "memory":
        return TestStopped("memory", "MemoryError", alive=True)
    if kind == "over" and len(words) == 2 and words[0] in _OVER:
        return TestStopped(_OVER[words[0]], f"over the budget of {words[0]} at {words[1]}", may_wait=True)
    if kind == "tamper" and words:
        return TestStopped("error", f"tampering: {words[0]}")
    if kind in ("raised", "syntax") and len(words) in (2, 3):
        raised = (words[2], words[1]) if words[2:] else ("", "")
        return TestStopped("error", ": ".join(word for word in words[:2] if word), alive=True, raised=raised)
    return _garbled()


def scratch_full_stop() -> TestStopped:
    return TestStopped("error", f"it wrote more than {SCRATCH_BYTES >> 20} MiB, or {SCRATCH_FILES} files")


def _garbled() -> TestStopped:
    return TestStopped("error", "the program wrote on the channel of its results")
