"""Files that a command writes for its user.

check_output(Path("ours.html"), "--out")               # before the work that it takes
write_output(Path("ours.html"), page.encode())         # whole or not at all
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from raypoly.core.errors import StorageError, UsageError


def check_output(path: Path, option: str) -> None:
    """Raise `UsageError`, naming the command's `option`, where the file can't be written."""
    if path.is_dir():
        raise UsageError(f"{option} {path} can't be written: it is a folder; name a file in it.")
    place = path if is_device(path) else path.resolve().parent
    if not os.access(place, os.W_OK):
        why = f"{place} is not yours to write" if place.exists() else f"there is no folder {place}"
        raise UsageError(f"{option} {path} can't be written: {why}; name a file in a folder of yours.")


def write_output(path: Path, data: bytes) -> None:
    """Raises `StorageError`; a full disk leaves the file before."""
    try:
        if is_device(path):
            path.write_bytes(data)
        else:
            _replace(path.resolve(), data)
    except OSError as error:
        told = f"{path} can't be written ({error.strerror}): mend that and run the same command again."
        raise StorageError(told) from error


def _replace(path: Path, data: bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(data)
        aside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to raise
            aside.unlink(missing_ok=True)
        raise


def is_device(path: Path) -> bool:
    """Whether it is one such as /dev/stdout, which must not be replaced by a file."""
    return path.exists() and not path.is_file() and not path.is_dir()
