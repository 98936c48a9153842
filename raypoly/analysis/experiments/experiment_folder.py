"""An experiment's folder: one command at a time works in it, and it remembers how many runs went on at once.

with at_work(out, at_once=2): ...
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from raypoly.core.errors import UsageError
from raypoly.core.version import __version__
from raypoly.run.run_folder import runs_root

STARTS, LOCK = "starts.jsonl", "experiment.lock"


def folder_of(out: str | None, name: str) -> Path:
    """The folder `out`, else one under `$RAYPOLY_RUNS`. Raises `UsageError` for a URI."""
    place = f"{runs_root().rstrip('/')}/experiment-{name}" if out is None else out
    if "://" in place:
        given = f"RAYPOLY_RUNS={runs_root()}" if out is None else f"--out {out}"
        why = "can't hold an experiment, whose logs need a folder of this machine"
        raise UsageError(f"{given} {why}: give --out FOLDER.")
    return Path(place).expanduser().absolute()


@contextmanager
def at_work(out: Path, at_once: int) -> Iterator[None]:
    """Keep other experiments out of the folder meanwhile; the kernel frees it however this process ends.

    Raises `UsageError` where another one is at work in it, and where it can't be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / LOCK).open("a")
    except OSError as error:
        raise UsageError(f"--out {out} can't be used ({error.strerror}): give another one.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"Another experiment is at work in {out}: wait for it, or give another --out.") from None
        start = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "raypoly": __version__, "at_once": at_once}
        with (out / STARTS).open("a") as starts:
            starts.write(json.dumps(start) + "\n")
        yield


def most_at_once(out: Path) -> int:
    """The most runs that went on side by side in any start of the experiment."""
    path = out / STARTS
    lines = path.read_text().splitlines() if path.exists() else []
    return max((_at_once(line) for line in lines), default=1)


def _at_once(line: str) -> int:
    try:
        return int(json.loads(line)["at_once"])
    except (ValueError, KeyError, TypeError):  # a kill may leave half a line
        return 1
