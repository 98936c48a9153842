"""Keeps what a run's actors wrote where they fail to start: a local Ray's folder, with its logs, is removed.

with ActorLogs(folder / "actors.log", progress.note):
    await services.start(...)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import ray

from workflows.liveness import ray_internals

_MOST = 2000
"""Lines kept of the end of each process's output."""
_OF_RAY = re.compile(r":(?:job_id|actor_name|task_name):(?P<name>.*)")
"""Lines that Ray adds to say whose output follows."""


class ActorLogs:
    """Writes `file` where its `with`, within a connection to Ray, ends by an exception. `note` prints a line that names
    it."""

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
    """What each process of the job on this machine wrote, under its actor's name."""
    for path in sorted(folder.glob("worker-*")) if folder is not None else ():
        text = path.read_bytes().decode(errors="replace")  # as it is, with carriage returns
        if job not in path.name and f":job_id:{job}" not in text:  # a process that Ray had ready has its job inside
            continue
        lines = [line.rpartition("\r")[2] for line in text.split("\n")]  # of a progress bar its last state
        told = [line for line in lines if line.strip() and not _OF_RAY.fullmatch(line)]
        names = [of_ray["name"] for line in lines if (of_ray := _OF_RAY.fullmatch(line))]
        if told:
            yield "\n".join([f"== {names[-1] if names else path.stem}, {path.suffix[1:]}", *told[-_MOST:]])
