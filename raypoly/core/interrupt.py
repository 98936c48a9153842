"""Ctrl-C and SIGTERM raise one exception with a sentence and an exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal asked the command to end."""

    def __init__(self, sentence: str, number: int) -> None:
        super().__init__(sentence)
        self.exit_code = 128 + number


@contextmanager
def interruptible(sentence: str) -> Iterator[None]:
    """Within the block the first signal raises `Interrupted` in the main thread; later signals are ignored."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(sentence, number)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def describe_interrupt(out: str | None) -> str:
    """The sentence for an interrupted command whose rows go to `out`."""
    return "Interrupted." + (" The same command goes on from here." if out not in (None, "-") else "")
