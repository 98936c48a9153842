"""Folder of a training, a preparation or an evaluation: its location and its lease."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from raypoly.core.config import RunConfig
from raypoly.core.errors import StorageError, UsageError
from raypoly.run.crash import CONFIG_KEY
from raypoly.run.store import Lease, Store, acquire_lease, open_store
from raypoly.run.store.location import Location, StorageOptions


def run_location(run: RunConfig, name: str, options: StorageOptions) -> Location:
    """`run.dir`, else a folder of this `name`; with `run.fresh` the first unused number. Raises `UsageError`."""
    location = Location.parse(runs_root()).child(name) if run.dir is None else Location.parse(run.dir)
    with explain_unusable(location):
        if run.fresh:
            location = next(place for place in _numbered(location) if not _taken(place, options))
        if location.folder is not None:
            _check_writable(location.folder)
    return location


def runs_root() -> str:
    """The folder or URI for runs without a `run.dir`."""
    return os.environ.get("RAYPOLY_RUNS") or "~/raypoly-runs"


def open_leased(
    location: Location, options: StorageOptions, description: str, record: Callable[[Store, Lease], None]
) -> tuple[Store, Lease]:
    """Make the folder, take its lease, and call `record`; give the lease back if that fails.

    Raises `LeaseHeld`, `UsageError`.
    """
    try:
        store = open_store(location, options)
        lease = acquire_lease(store, description)
    except StorageError as error:
        raise UsageError(f"run.dir={location} can't be used: {error}") from error
    try:
        record(store, lease)
    except BaseException:
        lease.release()
        raise
    return store, lease


@contextmanager
def explain_unusable(location: Location) -> Iterator[None]:
    """Turn a storage error into a `UsageError` that names `run.dir`."""
    try:
        yield
    except StorageError as error:
        raise UsageError(f"run.dir={location} can't be used: {error}") from error
    except OSError as error:
        raise UsageError(f"run.dir={location} can't be used ({error.strerror}); give another run.dir.") from error


def _numbered(location: Location) -> Iterator[Location]:
    yield location
    yield from (location.sibling(f"{location.name}-{number}") for number in itertools.count(2))


def _taken(location: Location, options: StorageOptions) -> bool:
    if location.folder is not None and location.folder.exists() and not location.folder.is_dir():
        return True
    return bool(open_store(location, options, make=False).peek())


def _check_writable(path: Path) -> None:
    above = next(folder for folder in (path, *path.parents) if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        reason = "is no folder" if not above.is_dir() else "is not writable"
        raise UsageError(f"run.dir={path} can't be used: {above} {reason}; give another run.dir or set $RAYPOLY_RUNS.")
    for outer in path.parents:
        if (outer / "starts").is_dir() and (outer / CONFIG_KEY).is_file():
            raise UsageError(f"run.dir={path} is inside the run {outer}: give a folder beside it.")
    if above != path and shutil.disk_usage(above).total == 0:  # such as /proc, where even root makes nothing
        raise UsageError(
            f"run.dir={path} can't be made: {above} keeps no files; give another run.dir or set $RAYPOLY_RUNS."
        )
