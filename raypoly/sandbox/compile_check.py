"""Finds programs that do not compile, without a process for each. Most of an untrained model's programs don't.

    check = CompileCheck(lambda: zygote)
    refusal = check.refusal(code)    # None: it compiles, or its own process decides

One confined child compiles them and runs none. It can only report that a program does not compile. If it gives no
answer within its limits, the program's own process decides.
"""

from __future__ import annotations

from collections.abc import Callable

from raypoly.sandbox.candidate_process import stop_of_reply
from raypoly.sandbox.channel import Child, ChildGone, Clock, Garbled, OutOfTime
from raypoly.sandbox.child import plain_data
from raypoly.sandbox.outcome import Refusal
from raypoly.sandbox.zygote_client import Forker

PROGRAMS = 1000
"""Programs for one child; then a new child replaces it."""
LONGEST = 1 << 16
"""The most bytes of a program that it compiles, which took up to 90 MiB."""
SECONDS = 1.0
"""CPU seconds for one program."""


class CompileCheck:
    """Owns one child at a time, started at the first program. Raises `SandboxError` if the forker is gone."""

    def __init__(self, forker: Callable[[], Forker]) -> None:
        """`forker` returns the current zygote; that changes only while this check is closed."""
        self._forker = forker
        self._child: Child | None = None
        self._programs, self._spent = 0, 0.0

    def refusal(self, code: str) -> Refusal | None:
        """Why the program can't be compiled; None if it can, or if that is unknown."""
        content = code.encode("utf-8", "surrogatepass")
        if len(content) > LONGEST:
            return None
        child = self._child = self._child or self._start()
        child.send(content)
        try:
            reply = child.receive()
            words = plain_data.decode(reply) if reply else None
        except (ChildGone, OutOfTime, Garbled, plain_data.Malformed):
            self.close()
            return None
        before, self._spent = self._spent, child.spent()
        self._programs += 1
        if self._programs >= PROGRAMS:
            self.close()
        if type(words) is not tuple or len(words) != 3 or words[0] != "syntax":
            return None
        return Refusal(stop_of_reply(words), self._spent - before)

    def close(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            child, self._child = self._child, None
            self._forker().reap(child)

    def _start(self) -> Child:
        seconds = PROGRAMS * SECONDS
        child = self._forker().fork(seconds, Clock(SECONDS, seconds))
        child.send(plain_data.pack(("compile",)))
        self._programs, self._spent = 0, 0.0
        return child
