"""The file-system calls that change something, one method each.

A crash, a full disk or a lost power line strikes between two of them: tests subclass `Disk` and stop at each in turn.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Disk:
    """POSIX calls; each may raise `OSError`."""

    def create(self, path: Path) -> BinaryIO:
        """A new file, open for writing; `FileExistsError` where one is there."""
        return open(path, "xb", buffering=0)

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]

    def sync(self, file: BinaryIO) -> None:
        """Return when the file's content has reached the disk."""
        os.fsync(file.fileno())

    def publish(self, aside: Path, path: Path) -> None:
        """Give a finished file its name; `FileExistsError` where the name is taken."""
        try:
            os.link(aside, path)  # unlike rename, never replaces: two writers can't both win
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
            os.rename(aside, path)
        else:
            self.remove(aside)

    def replace(self, aside: Path, path: Path) -> None:
        """Give a file its name, in place of what has it now."""
        os.replace(aside, path)

    def sync_folder(self, folder: Path) -> None:
        """Return when the folder's entries have reached the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some network file systems have no such call, and need none
                raise
        finally:
            os.close(descriptor)

    def make_folder(self, path: Path) -> None:
        """Make one folder; its parent is there."""
        path.mkdir(exist_ok=True)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is fine."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder; one that is gone or not empty is left as it is."""
        try:
            path.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.EBUSY):
                raise
