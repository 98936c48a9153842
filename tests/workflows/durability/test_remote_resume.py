"""A training in remote storage that is killed goes on from another machine, and ends as one on a local disk."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from raypoly import Run
from tests.support.driver_process import SMALL, Driver
from tests.support.run_differences import run_differences
from tests.support.s3_server import Fault, S3Server


@pytest.fixture
def overrides(warm_model: Path) -> list[str]:
    return [*SMALL, f"model.path={warm_model}", "generator.engine=transformers"]


def driver_on(s3: S3Server, overrides: list[str], scratch: Path) -> Driver:
    """A driver on S3 whose machine has nothing but `scratch`."""
    own = [f"run.scratch={scratch}", "run.storage_timeout=20"]
    return Driver(s3.uri("runs/mine"), scratch.with_suffix(".log"), [*overrides, *own])


def commits(s3: S3Server) -> int:
    """Requests so far that have committed groups or steps."""
    return s3.count("PUT", "/journal/") + s3.count("PUT", "/rollouts/")


def test_run_on_s3_that_is_killed_resumes_on_another_head_bit_identical(
    s3: S3Server, reference: Driver, overrides: list[str], tmp_path: Path
) -> None:
    first = driver_on(s3, overrides, tmp_path / "first")
    first.start()
    while commits(s3) < 9:
        assert first.lives, first.log()
        time.sleep(0.01)
    first.kill()

    second = driver_on(s3, overrides, tmp_path / "second")
    assert second.finish() == 0, second.log()
    assert second.log().splitlines()[0] == s3.uri("runs/mine")
    run = Run(s3.uri("runs/mine"))
    assert run_differences(run, Run(reference.place)) == []
    assert run.store.list("starts/") == ("starts/epoch-000001.json", "starts/epoch-000002.json")
    assert run.store.read("report.html")

    written = commits(s3)
    again = driver_on(s3, overrides, tmp_path / "third")
    assert again.finish() == 0, again.log()
    assert commits(s3) == written, "a finished run is left as it is"


@pytest.mark.slow
def test_storage_that_fails_now_and_then_changes_nothing(s3: S3Server, overrides: list[str], tmp_path: Path) -> None:
    for n in range(20):
        s3.faults.append(Fault(("slow_down", "error", "cut")[n % 3], at=3 + 9 * n, after=n % 2 == 1))
    driver = driver_on(s3, [*overrides, "train.steps=2"], tmp_path / "run")
    assert driver.finish() == 0, driver.log()
    assert len([request for request in s3.requests if request.struck]) > 5
    s3.end_faults()
    run = Run(s3.uri("runs/mine"))
    assert [row["step"] for row in run.rows] == [0, 1]
    assert run.finished


@pytest.mark.slow
def test_storage_that_hangs_ends_the_run_within_its_time_and_says_where_it_stood(
    s3: S3Server, reference: Driver, overrides: list[str], tmp_path: Path
) -> None:
    patient = ["run.storage_patience=3000", "run.stall_seconds=30", "run.grace_seconds=20"]
    driver = driver_on(s3, [*overrides, *patient], tmp_path / "run")
    process = driver.start()
    while commits(s3) < 9:
        assert driver.lives, driver.log()
        time.sleep(0.01)
    s3.faults.append(Fault("hang", times=-1))
    began = time.monotonic()
    assert process.wait(300) == 1, driver.log()
    assert time.monotonic() - began < 120, "30 s of stillness, 20 s to end in, and a busy machine"
    driver.finish()
    said = re.search(
        r"the storage made no progress for \d+ s \(\w+\): where each process stands is in (\S+\.txt)", driver.log()
    )
    assert said, driver.log()
    stacks = Path(said[1])
    assert re.search(r"raypoly/run/store/\w+\.py.*line \d+|raypoly/run/store/\w+\.py:\d+", stacks.read_text())
    stacks.unlink()
    assert "Traceback" not in driver.log()

    s3.end_faults()
    assert driver.finish() == 0, driver.log()
    assert run_differences(Run(s3.uri("runs/mine")), Run(reference.place)) == []
