"""On whose behalf a judge is asked: a shared judge serves several runs, and none shall starve another.

    with asking_for("run-3f2a"):
        judge.label(problem, rollouts, verdicts)      # inside it, and in this thread alone, asker() == "run-3f2a"

It travels beside the call and not in it, because a judge of the user's own need not know of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ASKER: ContextVar[str] = ContextVar("judge_asker", default="")


def asker() -> str:
    """Who asks; empty where nobody said."""
    return _ASKER.get()


@contextmanager
def asking_for(name: str) -> Iterator[None]:
    """Inside, this thread asks for `name`."""
    token = _ASKER.set(name)
    try:
        yield
    finally:
        _ASKER.reset(token)
