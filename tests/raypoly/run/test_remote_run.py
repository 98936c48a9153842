"""A run in remote storage is the same run from any machine: nothing of the first head is needed on the second."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from raypoly.analysis.reports.run_page import show_results
from raypoly.analysis.run import Run
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.run.run_identity import RunDirectory, resolve_run
from raypoly.run.sinks import METRICS, TENSORBOARD, Mirror, open_sinks
from raypoly.run.store import open_store
from raypoly.run.store.location import StorageOptions
from tests.support.finished_run import STEPS, metrics_row
from tests.support.finished_run import fill_run as fill_run
from tests.support.s3_server import S3Server, s3_server
from tests.support.saved_checkpoint import save_checkpoint
from workflows.durability.checkpoints import Checkpoints


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def uri(server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path / "cache"))
    return server.uri(f"{tmp_path.name}/mine", region="us-east-1")


def config(uri: str, scratch: Path, **sections: Any) -> Config:
    run = {"dir": uri, "scratch": str(scratch), "storage_timeout": 10.0, **sections.pop("run", {})}
    return Config.model_validate({"run": run, **sections})


def start_and_end(directory: RunDirectory) -> None:
    _, lease = directory.open("test")
    lease.release()


def test_another_head_goes_on_with_the_run(uri: str, tmp_path: Path) -> None:
    first = resolve_run(config(uri, tmp_path / "one"))
    assert not first.resumes
    start_and_end(first)
    second = resolve_run(config(uri, tmp_path / "two", train={"steps": 100}))
    assert second.resumes
    assert second.uri == uri
    assert second.name == "mine"
    assert {change.key for change in second.changes} == {"run.scratch", "train.steps"}
    start_and_end(second)
    assert Run(uri).config.train.steps == 100


def test_runs_may_live_in_remote_storage_by_default(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_RUNS", uri)
    directory = resolve_run(Config())
    assert directory.location.path.endswith(f"mine/{directory.name}")
    assert directory.name.startswith("tiny-poly_epo-s0-")


def test_missing_bucket_is_refused_before_anything_starts(uri: str, server: S3Server, tmp_path: Path) -> None:
    nowhere = uri.replace(server.bucket, "no-such-bucket")
    with pytest.raises(UsageError, match="the bucket does not exist"):
        resolve_run(config(nowhere, tmp_path))
    with pytest.raises(UsageError, match="the bucket does not exist"):
        Run(nowhere)
    with pytest.raises(UsageError, match="is not a run folder"):
        Run(uri)


def test_run_is_read_and_reported_from_remote_storage(uri: str) -> None:
    fill_run(uri)
    run = Run(uri)
    assert run.finished
    assert run.name == "mine"
    assert run.steps == list(range(STEPS))
    assert run.metrics().num_rows == STEPS
    assert run.rollouts(3).column("status").to_pylist() == ["passed", "wrong"]
    out = io.StringIO()
    show_results(run, Console(file=out, width=200))
    assert f"report: {uri.partition('?')[0]}/report.html" in out.getvalue()
    assert b"mine" in run.store.read("report.html")
    assert run.store.read("figure.png").startswith(b"\x89PNG")


def test_checkpoint_is_loaded_on_another_machine(uri: str, tmp_path: Path) -> None:
    store, lease = resolve_run(config(uri, tmp_path / "one")).open("test")
    weights = np.arange(1000, dtype=np.float32).tobytes()
    save_checkpoint(Checkpoints(store, lease), 2, {"model.safetensors": weights, "state/optimizer.bin": b"moments"})
    lease.release()
    store, lease = resolve_run(config(uri, tmp_path / "two")).open("test")
    found = Checkpoints(store, lease).newest_valid()
    assert found is not None
    assert found.read("model.safetensors") == weights
    assert (found.folder / "state" / "optimizer.bin").read_bytes() == b"moments"
    assert found.folder.is_relative_to(tmp_path / "two")
    lease.release()


def test_nothing_that_is_stored_names_a_path_of_the_machine(uri: str, tmp_path: Path) -> None:
    directory = resolve_run(config(uri, tmp_path / "scratch"))
    store, lease = directory.open("test")
    save_checkpoint(Checkpoints(store, lease), 1, {"model.safetensors": b"weights"})
    lease.release()
    told = [key for key in store.list() if str(tmp_path).encode() in store.read(key)]
    assert told == ["config.json"]  # what the user wrote: run.scratch
    assert json.loads(store.read("config.json"))["run"]["scratch"] == str(tmp_path / "scratch")


def test_metrics_and_events_are_kept_in_remote_storage(uri: str, tmp_path: Path) -> None:
    for head, steps in (("one", range(3)), ("two", range(2, 5))):
        store = open_store(uri, StorageOptions(scratch=tmp_path / head))
        mirror = Mirror(store, METRICS, TENSORBOARD)
        asked = config(uri, tmp_path / head, run={"tensorboard": True})
        sinks = open_sinks(asked, store.workspace, [mirror])
        for step in steps:
            sinks.log(metrics_row(step))
        sinks.close()
    rows = [json.loads(line) for line in store.read(METRICS).splitlines()]
    assert [row["step"] for row in rows] == list(range(5))
    assert len(store.list("tensorboard/")) == 2
