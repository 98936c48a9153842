"""What the local store promises beside what every store does: durable against crashes, clear about the disk."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raypoly.core.errors import StorageError
from raypoly.run.store import Store, open_store


@pytest.fixture
def reopen(open_local: Callable[[], Store]) -> Callable[[], Store]:
    return open_local


def test_nothing_is_left_beside_an_object(store: Store) -> None:
    store.commit("a", b"one")
    with pytest.raises(StorageError, match="can't be replaced"):
        store.commit("a", b"two")
    assert [path.name for path in store.workspace.iterdir()] == ["a"]


def test_file_uri_and_home_are_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store(f"file://{tmp_path}/a").uri == f"{tmp_path}/a"
    assert open_store("~/b").uri == f"{tmp_path}/b"


def test_full_disk_is_a_clear_error_and_loses_nothing(store: Store) -> None:
    store.commit("kept", b"kept")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the kernel then answers EFBIG, as a full disk ENOSPC
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(StorageError, match=r"big could not be written \(File too large\)"):
            store.commit("big", bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert store.list() == ("kept",)
    store.commit("big", bytes(2000))


def test_writer_killed_at_any_moment_leaves_whole_objects_only(tmp_path: Path) -> None:
    writer = (
        "import sys; from raypoly.run.store import open_store; store = open_store(sys.argv[1]); n = 0\n"
        "while True: store.commit(f'objects/{n:06d}', bytes([n % 251]) * 50_000); n += 1"
    )
    process = subprocess.Popen([sys.executable, "-c", writer, str(tmp_path)])
    while len(list(tmp_path.glob("objects/0*"))) < 20:
        time.sleep(0.01)
        assert process.poll() is None
    process.kill()
    process.wait()
    left = tmp_path / "objects" / f".x.{os.uname().nodename.replace('-', '_')}-{process.pid}-0.part"
    left.write_bytes(b"half")
    store = open_store(tmp_path)
    assert all(store.read(key) == bytes([int(key[-6:]) % 251]) * 50_000 for key in store.list("objects/"))
    store.clean()
    assert not list(tmp_path.glob("objects/.*"))


def test_file_that_a_live_writer_is_writing_is_left_alone(store: Store) -> None:
    part = store.local_path("x").with_name(f".x.{os.uname().nodename.replace('-', '_')}-{os.getpid()}-0.part")
    part.write_bytes(b"half")
    store.clean()
    assert part.exists()
