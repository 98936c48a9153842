"""Ray's own words, kept in files and told in a line: its messages to the driver, and the output of actors that fail.

with RayMessages(folder / "ray.log", progress.note):
    ...                                                  # a node's death, with a dump of its state
with ActorLogs(folder / "actors.log", progress.note):
    await services.start(...)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import ray

from actors import ray_internals

_LOST_NODE = re.compile(r"node with node id: \w+ and address: (?P<address>\S+)")
_DUMP = "Raylet is terminated"  # begins a dump, which comes once or twice beside the sentence that the node is lost
_LONGEST = 200  # characters of a message in the job's log
_MOST = 2000
_OF_RAY = re.compile(r":(?:job_id|actor_name|task_name):(?P<name>.*)")


class RayMessages:
    """`note` is called by a thread of Ray's."""

    def __init__(self, file: Path, note: Callable[[str], None]) -> None:
        self._file, self._note = file, note

    def __enter__(self) -> RayMessages:
        ray_internals.take_messages(self._take)
        return self

    def __exit__(self, *raised: object) -> None:
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


class ActorLogs:
    """Keeps the output of a run's actors in `file` if its `with` ends by an exception: a local Ray removes its logs."""

    def __init__(self, file: Path, note: Callable[[str], None]) -> None:
        self._file, self._note = file, note

    def __enter__(self) -> ActorLogs:
        self._folder, self._job = ray_internals.log_folder(), ray.get_runtime_context().get_job_id()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not isinstance(error, Exception):  # none, or who stopped the run knows why
            return
        with suppress(OSError):  # the error itself must come on a full disk as well
            if found := "\n\n".join(_outputs(self._folder, self._job)):
                self._file.write_text(found + "\n")
                self._note(f"What its actors wrote until they failed is in {self._file}")


def _outputs(folder: Path | None, job: str) -> Iterator[str]:
    for path in sorted(folder.glob("worker-*")) if folder is not None else ():
        text = path.read_bytes().decode(errors="replace")  # as it is, with carriage returns
        if job not in path.name and f":job_id:{job}" not in text:  # a process that Ray had ready has its job inside
            continue
        lines = [line.rpartition("\r")[2] for line in text.split("\n")]  # of a progress bar its last state
        told = [line for line in lines if line.strip() and not _OF_RAY.fullmatch(line)]
        names = [of_ray["name"] for line in lines if (of_ray := _OF_RAY.fullmatch(line))]
        if told:
            yield "\n".join([f"== {names[-1] if names else path.stem}, {path.suffix[1:]}", *told[-_MOST:]])
