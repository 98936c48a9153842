"""Read programs without running them: compile check, and what their source says for evidence.

    reader = SourceReader(lambda: zygote)
    refusal = reader.refusal(code)            # None: it compiles, or its own process decides
    found = reader.evidence(code, question)   # the evidence module's answer; None if none in time

One confined child reads them all: no program can touch what is found in another's, and none costs a process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raypoly.verifier.sandbox.candidate_process import stop_of_reply
from raypoly.verifier.sandbox.channel import Child, ChildGone, Clock, Garbled, OutOfTime
from raypoly.verifier.sandbox.child import plain_data
from raypoly.verifier.sandbox.outcome import Refusal
from raypoly.verifier.sandbox.zygote_client import Forker

PROGRAMS = 1000
"""Programs for one child."""
LONGEST = 1 << 16
"""Bytes of a program; reading one took up to 90 MiB. A longer one is not compiled here, and its child is replaced."""
SECONDS = 1.0
"""CPU seconds a program."""


class SourceReader:
    """Owns one child at a time, started at the first program. Raises `SandboxError` if the forker is gone."""

    def __init__(self, forker: Callable[[], Forker]) -> None:
        """`forker`: the current zygote, which changes only while this reader is closed."""
        self._forker = forker
        self._child: Child | None = None
        self._programs, self._spent = 0, 0.0

    def refusal(self, code: str) -> Refusal | None:
        """Why the program can't be compiled; None if it can, or if that is unknown."""
        if _size(code) > LONGEST:
            return None
        words = self._answer(("compile", code))
        if type(words) is not tuple or len(words) != 3 or words[0] != "syntax":
            return None
        return Refusal(stop_of_reply(words), self._last_seconds)

    def evidence(self, code: str, question: tuple[Any, ...]) -> Any:
        """The evidence module's answer about a program; None if it ends the child, or takes it too long.

        A child that has read others gets a second chance as a new one, so that they make no difference.
        """
        new = self._child is None
        found = self._answer(("source", *question))
        if found is None and not new:
            found = self._answer(("source", *question))
        if self._child is not None and _size(code) > LONGEST:
            self.close()
        return found

    def close(self) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            self._forker().reap(child)

    def _answer(self, question: tuple[Any, ...]) -> Any:
        # without an answer in time the child is ended
        child = self._child = self._child or self._start()
        child.send(plain_data.pack(question))
        try:
            answer = plain_data.decode(child.receive())
        except (ChildGone, OutOfTime, Garbled, plain_data.Malformed):
            self.close()
            return None
        before, self._spent = self._spent, child.spent()
        self._last_seconds = self._spent - before
        self._programs += 1
        if self._programs >= PROGRAMS:
            self.close()
        return answer

    def _start(self) -> Child:
        seconds = PROGRAMS * SECONDS
        child = self._forker().fork(seconds, Clock(SECONDS, seconds))
        child.send(plain_data.pack(("read",)))
        self._programs, self._spent, self._last_seconds = 0, 0.0, 0.0
        return child


def _size(code: str) -> int:
    return len(code.encode("utf-8", "surrogatepass"))
