"""However a driver ends, nothing of it survives: no actor, no sandbox, no process of Ray's, no temporary folder. While
it lives, it has its run alone.

`RAYPOLY_ENDS=all` tries every end; CI two of them.
"""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.local_driver import LocalDriver, wait_for
from workflows.liveness.shutdown import shell_command
from workflows.startup.ray_cluster import descendants

ENDLESS = ("train.steps=100000", "train.checkpoint_every=1000")
EVERY_END = os.environ.get("RAYPOLY_ENDS") == "all"
longer = pytest.mark.skipif(not EVERY_END, reason="RAYPOLY_ENDS=all tries it: each needs a Ray of its own")


@pytest.fixture
def driver(small_run: list[str], tmp_path: Path) -> LocalDriver:
    """Of a Ray of its own, which it has to end as well."""
    return LocalDriver(tmp_path / "run", [*small_run, *ENDLESS])


def test_a_second_driver_is_refused_and_sigterm_saves_a_checkpoint_and_leaves_nothing(driver: LocalDriver) -> None:
    process = trains(driver)
    left = descendants(process.pid)
    assert any("Scorer" in title(pid) for pid in left), "there must be something to leave behind"
    second = LocalDriver(driver.folder, driver.overrides)
    assert second.finish() == 2
    assert re.search(rf"held by pid {process.pid}\b", second.log())
    assert driver.lives
    steps = driver.folder / "rollouts"
    before = len(list(steps.iterdir()))
    wait_for(lambda: len(list(steps.iterdir())) > before)  # between update and commit none is saved
    process.send_signal(signal.SIGTERM)
    assert driver.finish() == 0, driver.log()
    again = f"Stopped; everything is committed. Resume with: {shell_command(driver.command[1:])}"
    assert again in driver.log()
    assert "Traceback" not in driver.log()
    assert list((driver.folder / "checkpoints").glob("step-*/manifest.json")), driver.log()
    assert_gone(left, process.pid)


def test_kill_9_leaves_nothing(driver: LocalDriver) -> None:
    process = trains(driver)
    left = descendants(process.pid)
    os.kill(process.pid, signal.SIGKILL)  # to the driver alone
    process.wait()
    driver.forget_process()
    assert_gone(left, process.pid)


@longer
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_stops_in_good_order_and_a_second_one_now(driver: LocalDriver, times: int) -> None:
    process = trains(driver)
    left = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: "press Ctrl-C again to stop now" in driver.log())
    if times == 2:
        process.send_signal(signal.SIGINT)
    assert driver.finish() == 130, driver.log()
    assert "Resume with" in driver.log()
    assert_gone(left, process.pid)


@longer
@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
def test_a_driver_whose_ray_dies_says_so_and_ends(driver: LocalDriver, victim: str) -> None:
    process = trains(driver)
    left = descendants(process.pid)
    (pid,) = (pid for pid in left if os.path.basename(title(pid)) == victim)
    os.kill(pid, signal.SIGKILL)
    assert driver.finish() == 1, driver.log()
    assert "Ray is gone" in driver.log()
    assert "resume with the same command" in driver.log()
    assert_gone(left, process.pid)


@longer
def test_a_finished_run_leaves_nothing(small_run: list[str], tmp_path: Path) -> None:
    driver = LocalDriver(tmp_path / "run", [*small_run, "train.steps=2"])
    process = trains(driver)
    left = descendants(process.pid)
    assert driver.finish() == 0, driver.log()
    assert_gone(left, process.pid)


def trains(driver: LocalDriver) -> subprocess.Popen[str]:
    """Started, with a step behind it."""
    process = driver.start()
    wait_for(lambda: bool(list(driver.folder.glob("rollouts/step-*.parquet"))) or not driver.lives)
    assert driver.lives, driver.log()
    return process


def assert_gone(processes: set[int], driver: int) -> None:
    """Ray's own processes end each other; they have ten minutes for that, on a machine however busy."""
    until = time.monotonic() + 600
    while time.monotonic() < until:
        living = {pid: title(pid) for pid in processes if title(pid)}
        folders = list(Path("/tmp").glob(f"rp-{driver}-*"))
        if not living and not folders:
            return
        time.sleep(0.1)
    raise AssertionError(f"left behind: {living}, {folders}")


def title(pid: int) -> str:
    """What the process is; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
    except OSError:
        return ""
