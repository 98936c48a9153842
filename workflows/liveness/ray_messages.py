"""What Ray tells a driver, such as a node's death with a dump of its state: a line in the job's log, all in a file.

with RayMessages(folder / "ray.log", progress.note):
    ...
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from workflows.liveness import ray_internals

_LOST_NODE = re.compile(r"node with node id: \w+ and address: (?P<address>\S+)")
_DUMP = "Raylet is terminated"
"""Begins a dump, which comes once or twice beside the sentence that the node is lost."""
_LONGEST = 200
"""Characters of a message in the job's log."""


class RayMessages:
    """Takes Ray's messages within `with`. `note` prints a line; a thread of Ray's calls it."""

    def __init__(self, file: Path, note: Callable[[str], None]) -> None:
        self._file, self._note = file, note

    def __enter__(self) -> RayMessages:
        ray_internals.take_messages(self._take)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        ray_internals.take_messages(None)

    def _take(self, message: str) -> None:
        with suppress(OSError), self._file.open("a") as file:  # the line below must come on a full disk as well
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {message.rstrip()}\n\n")
        if message.startswith(_DUMP):
            return
        lost = _LOST_NODE.search(message)
        first, *others = message.strip().splitlines() or [""]
        if first.endswith(":") and others:  # a traceback follows, whose last line is the error
            first = f"{first} {others[-1].strip()}"
        first = first[:_LONGEST].rstrip(".")
        told = f"Ray lost the node {lost['address']}; what ran there starts again" if lost else f"Ray says: {first}"
        self._note(f"{told}. Its report is in {self._file}.")
