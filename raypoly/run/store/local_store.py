"""The store on a local (or network-mounted) file system, and its lease.

A commit writes a file aside, syncs it, gives it its name without replacing anything, and syncs the folder.
The lease is `flock` on `lease.lock`; `lease.json` names its owner and epoch.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from raypoly.core.errors import StorageError
from raypoly.run.store.lease import Lease, LeaseOwner, LeaseState, is_alive, lease_held, lease_overtaken, lease_released
from raypoly.run.store.location import Location
from raypoly.run.store.store import Content, RequestFailed, Store, check_key, in_parts

LOCK_KEY = "lease.lock"
OWNER_KEY = "lease.json"
_LOCK_SECONDS = 5.0
_RETRY = 0.05
_ASIDE = re.compile(r"^\..+\.(?P<host>[^.]*)-(?P<pid>\d+)-\d+\.part$")
_STALE_SECONDS = 3600.0
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_HINTS = {
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "your quota is used up: free some space and run the same command again",
    errno.EROFS: "it is mounted read-only: make it writable and run the same command again",
    errno.EACCES: "make it readable and writable and run the same command again",
}


class Disk:
    """The POSIX calls that change something, one method each; each may raise `OSError`.

    A crash, a full disk or a power cut strikes between two of them: tests subclass this and stop at each in turn.
    """

    def create(self, path: Path) -> BinaryIO:
        """Open a new file for writing; `FileExistsError` if there is one."""
        return open(path, "xb", buffering=0)

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]

    def sync(self, file: BinaryIO) -> None:
        os.fsync(file.fileno())

    def publish(self, aside: Path, path: Path) -> None:
        """Give a finished file its name; `FileExistsError` if the name is taken."""
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
        """Give a file its name, replacing any file of that name."""
        os.replace(aside, path)

    def sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some network file systems have no such call, and need none
                raise
        finally:
            os.close(descriptor)

    def make_folder(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def remove(self, path: Path) -> None:
        """Remove a file; it may be gone already."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder; leave one that is gone or not empty."""
        try:
            path.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.EBUSY):
                raise


class LocalStore(Store):
    """Objects as files under one folder."""

    def __init__(self, root: Path, disk: Disk | None = None, make: bool = True) -> None:
        """`make=False`: do not make the folder, to look into one that may not exist."""
        super().__init__(Location.parse(root), root)
        self.root = root
        self._disk = disk or Disk()
        self._host = re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname())
        self._counter = itertools.count()
        if make:
            self._do("made", "", lambda: root.mkdir(parents=True, exist_ok=True))

    def local_path(self, key: str) -> Path:
        return self.root.joinpath(*check_key(key).split("/"))

    def fetch(self, key: str) -> Path:
        path = self.local_path(key.removesuffix("/"))
        if not self._do("read", key, path.exists):
            raise StorageError(f"{path} could not be read: it is missing.")
        return path

    def clean(self) -> None:
        self._do("cleaned", "", self._clean)

    def _move(self, key: str, target: str) -> None:
        self._do("moved", key, lambda: self._rename(self.local_path(key), self.local_path(target)), changes=True)

    def _create(self, key: str, content: bytes | Path) -> bool:
        path, created = self.local_path(key), True
        aside = self._write_aside(path, content)
        try:
            self._disk.publish(aside, path)
        except FileExistsError:
            self._disk.remove(aside)
            created = False
        self._disk.sync_folder(path.parent)  # in either case the object of that name is durable now
        return created

    def _put(self, key: str, content: Content) -> None:
        path = self.local_path(key)
        aside = self._write_aside(path, content)
        self._disk.replace(aside, path)
        self._disk.sync_folder(path.parent)

    def _get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        with self.local_path(key).open("rb") as file:
            file.seek(start)
            return file.read(-1 if end is None else end - start)

    def _size(self, key: str) -> int | None:
        path = self.local_path(key)
        with contextlib.suppress(FileNotFoundError):  # removed between the two calls
            return path.stat().st_size if path.is_file() else None
        return None

    def _keys(self, folder: str) -> Iterator[str]:
        for path in _files(self.root / folder):
            if path.name[0] != ".":
                yield path.relative_to(self.root).as_posix()

    def _names(self) -> Iterator[str]:
        names = os.listdir(self.root) if self.root.exists() else []
        yield from (name for name in names if name[0] != ".")

    def _delete(self, key: str) -> None:
        path = self.local_path(key)
        self._disk.remove(path)
        self._disk.remove_folder(path.parent)

    def _rename(self, source: Path, path: Path) -> None:
        self._make_folder(path.parent)
        self._disk.replace(source, path)
        self._disk.sync_folder(path.parent)
        self._disk.remove_folder(source.parent)

    def _clean(self) -> None:
        for path in _files(self.root):
            aside = _ASIDE.match(path.name)
            if aside and self._is_left_behind(path, aside["host"], int(aside["pid"])):
                self._disk.remove(path)

    def _is_left_behind(self, path: Path, host: str, pid: int) -> bool:
        # Other commands (a report) may be writing derived files now.
        if host == self._host and not is_alive(pid):
            return True
        try:
            return time.time() - path.stat().st_mtime > _STALE_SECONDS
        except FileNotFoundError:  # its writer has just finished it
            return False

    def _write_aside(self, path: Path, content: Content) -> Path:
        """Write and sync a file beside `path`, under a name that readers ignore."""
        self._make_folder(path.parent)
        aside = path.with_name(f".{path.name}.{self._host}-{os.getpid()}-{next(self._counter)}.part")
        try:
            with self._disk.create(aside) as file:
                for part in in_parts(content):
                    self._disk.write(file, part)
                self._disk.sync(file)
        except BaseException:  # also of what makes the pieces
            with contextlib.suppress(OSError):  # the first error is the one to raise; `clean` removes the file
                self._disk.remove(aside)
            raise
        return aside

    def _explain(self, error: OSError) -> RequestFailed:
        hint = _HINTS.get(error.errno or 0, "check the disk and run the same command again")
        return RequestFailed(str(error.strerror or error), hint, transient=False)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder and its parents below the root, each entry durable."""
        if folder.is_dir():
            return
        if folder != self.root:
            self._make_folder(folder.parent)
        self._disk.make_folder(folder)
        self._disk.sync_folder(folder.parent)


def _files(folder: Path) -> Iterator[Path]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir():
            yield from _files(Path(entry.path))
        else:
            yield Path(entry.path)


class LocalLease(Lease):
    """A locked file: the kernel frees it when its owner dies."""

    def __init__(self, store: LocalStore, descriptor: int, epoch: int) -> None:
        self.epoch = epoch
        self._store = store
        self._descriptor: int | None = descriptor
        # A forked child would keep the lock alive after its parent died.
        os.register_at_fork(after_in_child=self.release)

    @classmethod
    def acquire(cls, store: LocalStore, description: str) -> LocalLease:
        descriptor = _lock(store)
        unfenced = store.with_options(store.options)  # an earlier lease of this process must not refuse
        try:
            epoch = _next_epoch(unfenced)
            owner = {"epoch": epoch, **asdict(LeaseOwner.this_process(description))}
            unfenced.put_mutable(OWNER_KEY, json.dumps(owner, indent=2).encode())
            store.clean()
        except BaseException:
            os.close(descriptor)
            raise
        lease = cls(store, descriptor, epoch)
        store.fence = lease.check
        return lease

    def check(self) -> None:
        if self._descriptor is None:
            raise lease_released(self._store.uri)
        # The lock says nothing here: a network file system may have dropped it and given it to another machine. That
        # machine's driver has then written a newer epoch.
        found = read_owner(self._store)
        if found is None:
            raise StorageError(f"{self._store.uri}/{OWNER_KEY} is gone or damaged; was the run folder moved?")
        epoch, owner = found
        if epoch > self.epoch:
            raise lease_overtaken(self._store.uri, owner.description, epoch, self.epoch)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_owner(store: LocalStore) -> tuple[int, LeaseOwner] | None:
    """Epoch and owner on disk; None if the file is missing or damaged."""
    if not store.exists(OWNER_KEY):
        return None
    try:
        fields = json.loads(store.read(OWNER_KEY))
        return int(fields.pop("epoch")), LeaseOwner(**fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def probe_local_lease(store: LocalStore) -> LeaseState | None:
    found = read_owner(store)
    if found is None:
        return None
    epoch, owner = found
    if owner.is_gone:
        return LeaseState(epoch, False, f"free; last held by {owner.description}, which has ended")
    if not owner.is_here:
        return LeaseState(epoch, None, f"perhaps held by {owner.description}, which can't be asked from this machine")
    if _is_locked(store.local_path(LOCK_KEY)):
        return LeaseState(epoch, True, f"held by {owner.description}")
    return LeaseState(epoch, False, f"free; given back by {owner.description}")


def _lock(store: LocalStore) -> int:
    path = store.local_path(LOCK_KEY)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(f"{path} could not be opened ({error.strerror}); make it writable.") from error
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            # A dead owner may still be named: the new one is about to write its name, or the kernel is still closing
            # the old one's files. That ends in some seconds.
            found = read_owner(store)
            if (found and not found[1].is_gone) or time.monotonic() > deadline:
                os.close(descriptor)
                raise lease_held(store.uri, found[1].description if found else "another process") from None
        except OSError as error:
            os.close(descriptor)
            raise StorageError(
                f"{path} could not be locked ({error.strerror}); use a file system that supports flock."
            ) from error
        time.sleep(_RETRY)


def _next_epoch(store: LocalStore) -> int:
    found = read_owner(store)
    if found:
        return found[0] + 1
    if set(store.list()) <= {LOCK_KEY}:
        return 1
    if store.exists(OWNER_KEY):
        store.quarantine(OWNER_KEY, "it is no lease")
    return int(time.time())  # the last epoch was lost: the time is beyond it


def _is_locked(path: Path) -> bool:
    try:  # by the kernel's list: trying the lock would take it
        inode = str(os.stat(path).st_ino)
        return any(line.split()[5].rpartition(":")[2] == inode for line in Path("/proc/locks").read_text().splitlines())
    except (OSError, IndexError):
        return True  # not known: better to say held
