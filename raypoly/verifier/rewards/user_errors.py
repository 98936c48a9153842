"""Errors of functions that a user wrote: what says that a server is away, and what is told of the others."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raypoly.core.errors import RaypolyError

_OURS = tuple(str(Path(__file__).resolve().parents[3] / room) for room in ("raypoly", "actors", "workflows"))
_BUSY = {408, 425, 429, 502, 503, 504}  # HTTP: ask again later
# Errors of clients that don't derive from Python's own, by name: httpx, requests, aiohttp, openai; and those among them
# that say something else.
_CONNECTION = {"TransportError", "ConnectionError", "Timeout", "ClientConnectionError", "APIConnectionError"}
_NOT = {"BrokenPipeError", "UnsupportedProtocol", "LocalProtocolError"}
# Where a timeout of the network is raised; one that is raised elsewhere is the function's own.
_NETWORK = ("socket.py", "ssl.py", "client.py", "request.py", "timeouts.py", "streams.py", "selector_events.py")


class Overtime(Exception):
    """A call took longer than `reward.timeout`."""


def away_reason(error: BaseException) -> str | None:
    """Why an error says that a server can't be reached or won't serve now; None where it says something else."""
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        given = [getattr(it, name, None) for it in (cause, response) for name in ("status_code", "status", "code")]
        if busy := [status for status in given if isinstance(status, int) and status in _BUSY]:
            return f"its server answers {busy[0]}"
        if isinstance(cause, Overtime):
            return str(cause)
        names = {kind.__name__ for kind in type(cause).__mro__}
        if (names & _CONNECTION and not names & _NOT) or "gaierror" in names or _of_network(cause):
            return f"its server can't be reached ({type(cause).__name__})"
    return None


def _of_network(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, TimeoutError) and bool(frames) and Path(frames[-1].filename).name in _NETWORK


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error with those that it was raised from; urllib keeps one as its `reason`."""
    while error is not None:
        yield error
        reason = getattr(error, "reason", None)
        if isinstance(reason, BaseException):
            yield reason
        error = error.__cause__


@contextmanager
def told() -> Iterator[None]:
    """A user's exception as a `RaypolyError` of one sentence: what was raised, where, and on which response."""
    try:
        yield
    except RaypolyError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)]
        where = [f"{frame.filename}, line {frame.lineno}, in {frame.name}" for frame in theirs[-1:]]
        notes = [note.replace("\n", " ") for note in getattr(error, "__notes__", ())]
        raise RaypolyError(". ".join([f"{type(error).__name__}: {error}", *where, *notes]) + ".") from error
