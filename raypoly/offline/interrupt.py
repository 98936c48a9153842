"""End in good order on Ctrl-C and on SIGTERM: both become one exception that carries sentence and exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """Somebody asked the command to end."""

    def __init__(self, sentence: str, number: int) -> None:
        super().__init__(sentence)
        self.exit_code = 128 + number


@contextmanager
def interruptible(sentence: str) -> Iterator[None]:
    """Within the block, in the main thread, the first signal raises `Interrupted`; later ones find it under way."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(sentence, number)

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def goes_on(out: str | None) -> str:
    """What is said of an interrupt to somebody whose rows go to `out`."""
    return "Interrupted." + (" The same command goes on from here." if out not in (None, "-") else "")
