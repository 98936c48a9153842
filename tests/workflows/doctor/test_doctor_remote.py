"""The doctor looks at a run in remote storage as it does at one on disk, and asks for no change of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raypoly.run.store import open_store
from tests.support import run_with_history as made
from tests.support.s3_server import S3Server, s3_server
from workflows.doctor import examine


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path / "cache"))
        yield server


def test_run_on_s3_is_checked_where_it_is(server: S3Server, tmp_path: Path) -> None:
    made.write_run_with_history(tmp_path / "run", tmp_path / "old")
    uri = server.uri("mine", region="us-east-1")
    store = open_store(uri)
    for path in sorted((tmp_path / "run").rglob("*")):
        key = path.relative_to(tmp_path / "run").as_posix()
        if path.is_file() and not key.startswith("lease"):
            store.commit(key, path.read_bytes())
    server.requests.clear()
    report = examine(uri)
    assert not report.damaged
    assert report.resume.step == made.STEPS
    assert report.lease is not None
    assert report.lease.lives is None
    assert {request.method for request in server.requests} <= {"GET", "HEAD"}
    key = "rollouts/step-000103.parquet"
    data = store.read(key)
    store.put_mutable(key, data[:-1])
    report = examine(uri)
    assert [finding.key for finding in report.findings if finding.state == "damaged"] == [key]
