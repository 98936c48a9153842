"""Stores of every kind, for the promises that all of them keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from raypoly.run.store import Store, open_store
from raypoly.run.store.filesystem_backend import FilesystemBackend
from raypoly.run.store.location import Location, StorageOptions
from raypoly.run.store.remote_store import RemoteStore
from tests.support.s3_server import S3Server

Open = Callable[[], Store]
"""Opens the same place anew, as another process would."""


@pytest.fixture
def options(tmp_path: Path) -> StorageOptions:
    return StorageOptions(timeout=10.0, patience=30.0, scratch=tmp_path / "scratch")


@pytest.fixture
def s3_location(s3: S3Server, tmp_path: Path) -> Location:
    return Location.parse(s3.uri(f"{tmp_path.parent.name}/{tmp_path.name}/run"))


@pytest.fixture
def open_s3(s3_location: Location, options: StorageOptions) -> Open:
    return lambda: open_store(s3_location, options)


@pytest.fixture
def open_pyarrow(tmp_path: Path, options: StorageOptions) -> Open:
    def opened() -> Store:
        below = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
        return RemoteStore(Location("hdfs", "cluster", "run"), FilesystemBackend(below, "run"), options)

    return opened


@pytest.fixture
def open_local(tmp_path: Path) -> Open:
    return lambda: open_store(tmp_path / "run")


@pytest.fixture(params=["local", "pyarrow", "s3"])
def reopen(request: pytest.FixtureRequest) -> Open:
    opened: Open = request.getfixturevalue(f"open_{request.param}")
    return opened


@pytest.fixture
def store(reopen: Open) -> Store:
    return reopen()
