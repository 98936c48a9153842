"""A disk that is full at any stage of a real training: one clear sentence, nothing lost, and it goes on with room.

`RAYPOLY_FULL_DISKS=all` tries every stage; CI two of them.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raypoly import Run
from raypoly.run.store import open_store
from raypoly.run.store.step_records import decode
from tests.support.commit_watcher import CommitWatcher
from tests.support.local_driver import LocalDriver
from tests.support.ray_machines import Machines
from tests.support.run_differences import run_differences

SIZE = "size=700m"
"""Somewhat more than what a run must find free at its start."""
FULL = re.compile(
    r"could not be written \(No space left on device\); free some space and run the same command again"
    r"|This run needs about 0.5 GiB of disk and 0.0 GiB are free"
)
BESIDE = "The last checkpoint was not written, its steps will be replayed"
"""So begins a note of the writer beside training, which can meet the full disk as well."""
Stage = Callable[[Path], bool]


def journalled(kind: str, step: int) -> Stage:
    """Whether a record of this kind was committed in a step."""

    def reached(run: Path) -> bool:
        for path in sorted(run.glob(f"journal/step-{step:06d}/*.arrow")):
            with contextlib.suppress(FileNotFoundError):  # the step was compacted meanwhile
                if any(record.kind == kind for record in decode(step, int(path.stem), path.read_bytes())):
                    return True
        return False

    return reached


def written(name: str) -> Stage:
    return lambda run: (run / name).exists()


STAGES: dict[str, Stage] = {
    "before it starts": lambda run: True,
    "generated": journalled("generated", 0),
    "scored": journalled("score", 1),
    "judged": journalled("judge", 1),
    "checkpoint": written("rollouts/step-000001.parquet"),
    "compacted": written("rollouts/step-000002.parquet"),
    "after a checkpoint": written("checkpoints/step-000004/manifest.json"),
    "last checkpoint": written("rollouts/step-000004.parquet"),
    "model": written("checkpoints/step-000005/manifest.json"),
}
"""The disk is full as soon as one of these is seen, in turn."""
SHORT = ("before it starts", "scored")
CHOSEN = STAGES if os.environ.get("RAYPOLY_FULL_DISKS") == "all" else SHORT


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", SIZE, "raypoly-test", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no small disk can be had here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_full_disk_at_any_stage_loses_nothing(
    machines: Machines, reference: LocalDriver, small_run: list[str], disk: Path, tmp_path: Path
) -> None:
    run = disk / "run"
    driver = LocalDriver(run, small_run, {"RAY_ADDRESS": machines.address})
    driver.log_file = tmp_path / "run.log"
    with CommitWatcher(open_store(run, make=False)) as watcher:
        for name in CHOSEN:
            told = fill_at(driver, disk, STAGES[name])
            sentences = [line for line in told.splitlines() if FULL.search(line) and not line.startswith(BESIDE)]
            assert len(sentences) == 1, f"{name}: {told}"
            assert "Traceback" not in told, f"{name}: {told}"
        assert driver.finish() == 0, driver.log()
    assert watcher.faults == []
    assert run_differences(Run(run), Run(reference.folder)) == []


def fill_at(driver: LocalDriver, disk: Path, reached: Stage) -> str:
    """Start the driver, leave no room from that stage on, wait for its end, make room; what it said."""
    before = len(driver.log()) if driver.log_file.exists() else 0
    if reached(driver.folder):
        fill(disk)
        driver.start()
    else:
        process = driver.start()
        while driver.lives and not reached(driver.folder):
            time.sleep(0.002)
        assert driver.lives, driver.log()[before:]
        os.kill(process.pid, signal.SIGSTOP)  # so that it stands where it was seen to
        fill(disk)
        os.kill(process.pid, signal.SIGCONT)
    code = driver.finish()
    (disk / "filler").unlink()
    told = driver.log()[before:]
    assert code in (1, 2), told
    return told


def fill(disk: Path) -> None:
    with open(disk / "filler", "wb", buffering=0) as file:
        free = os.statvfs(disk)
        os.posix_fallocate(file.fileno(), 0, max(1, (free.f_bavail - 8) * free.f_bsize))
        file.seek(0, os.SEEK_END)
        with contextlib.suppress(OSError):  # until it is full
            while True:
                file.write(bytes(4096))
