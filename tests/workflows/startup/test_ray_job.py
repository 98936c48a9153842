"""`ray job submit --working-dir . -- python -m raypoly.train` on a head of its own, token authentication on."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from raypoly import Run
from tests.support.local_driver import ROOT, SMALL, LocalDriver, wait_for
from tests.support.ports import free_port
from tests.workflows.liveness.test_shutdown import title
from workflows.startup.ray_cluster import descendants

BIN = Path(sys.executable).parent
SUBMIT = "ray job submit --working-dir . -- python"
OURS = r"ray::(Generator|Learner|Judge|Scorer)"
"""Titles of the processes of a run's actors."""


@dataclass
class Head:
    """A Ray head with ports and folders of its own."""

    folder: Path
    environment: dict[str, str]
    address: str
    dashboard: str
    process: subprocess.Popen[str]

    def job(self, command: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`ray job command ...`; on a busy machine the agent that starts jobs comes up long after the dashboard."""
        for last in (*11 * [False], True):
            done = subprocess.run(
                [BIN / "ray", "job", command, f"--address={self.dashboard}", *arguments],
                cwd=ROOT,
                env=self.environment | environment,
                capture_output=True,
                text=True,
                timeout=1200,
                check=False,
            )
            if last or "No available agent" not in done.stderr + done.stdout:
                break
            time.sleep(5)
        return done


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    folder = Path(tempfile.mkdtemp(prefix="rj-", dir="/tmp"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environment |= {"HOME": str(folder), "PATH": f"{BIN}:{environment['PATH']}", "RAY_AUTH_MODE": "token"}
    subprocess.run([BIN / "ray", "get-auth-token", "--generate"], env=environment, check=True, capture_output=True)
    # on a busy machine Ray's own patience at start (30 s) may need several tries
    started = next(filter(None, (_start(folder, environment) for _ in range(4))), None)
    assert started is not None, (folder / "head.log").read_text()
    yield started
    _end(started.process, folder)
    shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, environment: dict[str, str]) -> Head | None:
    """A head that is up: its dashboard answers some time before that. None where it gave up."""
    port, dashboard = free_port(), free_port()
    command = [BIN / "ray", "start", "--head", "--block", "--num-cpus=2", f"--port={port}", "--disable-usage-stats"]
    command += [f"--dashboard-port={dashboard}", f"--temp-dir={folder / 'ray'}", "--dashboard-agent-listen-port=0"]
    told = folder / "head.log"
    with told.open("a") as log:
        before = log.tell()
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, text=True, start_new_session=True, cwd=folder
        )
    until = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            answers = probe.connect_ex(("127.0.0.1", dashboard)) == 0
        if answers and b"Ray runtime started" in told.read_bytes()[before:]:
            return Head(folder, environment, f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}", process)
        time.sleep(0.2)
    _end(process, folder)
    return None


def _end(process: subprocess.Popen[str], folder: Path) -> None:
    """End this head's processes by pid: `ray stop` would end every Ray of the machine."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    with_folder = subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, text=True, check=False).stdout
    for pid in map(int, with_folder.split()):
        if pid != os.getpid():
            with_pid = Path(f"/proc/{pid}")
            if with_pid.exists():
                os.kill(pid, signal.SIGKILL)
    process.wait(300)


@pytest.fixture
def run(small_run: list[str], tmp_path: Path) -> LocalDriver:
    return LocalDriver(tmp_path / "run", small_run)


def test_two_submitted_jobs_train_at_once_and_their_logs_show_progress(
    head: Head, run: LocalDriver, small_run: list[str], tmp_path: Path
) -> None:
    beside = LocalDriver(tmp_path / "beside", small_run)
    head.job("submit", "--no-wait", "--working-dir", ".", "--", "python", *beside.command[1:], "train.steps=2")
    measured = ("train.steps=2", "evaluate.every=2", "evaluate.samples=2")
    done = head.job("submit", "--working-dir", ".", "--", "python", *run.command[1:], *measured)
    assert done.returncode == 0, done.stdout + done.stderr + (head.folder / "head.log").read_text()
    assert str(run.folder) in done.stdout
    assert re.search(r"step 2/2\b.*reward", done.stdout)
    assert run.summary["state"] == "finished"
    assert f"to compare: {SUBMIT} -m raypoly.train" in done.stdout
    wait_for(lambda: (beside.folder / "summary.json").exists() and beside.summary["state"] == "finished")

    assert "(its token: cat ~/.ray/auth_token)" in done.stdout
    listed = head.job("list").stdout  # what the dashboard's page of jobs shows
    for said in (
        "'step': '2 of 2'",
        "'reward': '0.",
        f"'run': '{run.folder.name}'",
        "'test split': 'after step 2: pass@1",
    ):
        assert said in listed

    refused = head.job("list", HOME=str(tmp_path))
    assert refused.returncode != 0, "without the token nobody gets in"


JOIN = """
import os
from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError
from workflows.startup.ray_cluster import connect_ray
try:
    with connect_ray(Config(), "joined"):
        print("joined, and before as after:", os.environ["RAY_AUTH_MODE"])
except RaypolyError as error:
    print(error)
print(os.environ.get("RAY_AUTH_MODE"))
"""


def test_the_token_of_this_machine_is_used_and_one_that_is_missing_or_wrong_is_named(
    head: Head, tmp_path: Path
) -> None:
    """Where nobody set `RAY_AUTH_MODE`, as after a plain `ray start --head`, which asks for the token that is there."""
    plain = {**head.environment, "RAY_ADDRESS": head.address}
    del plain["RAY_AUTH_MODE"]

    def join(**environment: str) -> list[str]:
        command = [sys.executable, "-c", JOIN]
        return subprocess.check_output(command, env=plain | environment, text=True, cwd=ROOT).splitlines()

    assert join() == ["joined, and before as after: token", "None"]
    for environment in (
        {"HOME": str(tmp_path)},
        {"HOME": str(tmp_path), "RAY_AUTH_MODE": "token"},
        {"RAY_AUTH_TOKEN": "x"},
    ):
        said, mode = join(**environment)
        assert said.startswith(
            f"Ray at RAY_ADDRESS={head.address} refuses this process: its token is missing or another."
        )
        assert mode == environment.get("RAY_AUTH_MODE", "None")


@pytest.mark.slow
def test_a_stopped_job_leaves_no_actor_and_the_same_command_goes_on(head: Head, run: LocalDriver) -> None:
    training = ("--working-dir", ".", "--", "python", *run.command[1:], "train.steps=40")  # time to stop it in
    head.job("submit", "--no-wait", "--submission-id=one", *training)
    wait_for(lambda: bool(list(run.folder.glob("rollouts/step-*.parquet"))))
    actors = [pid for pid in descendants(head.process.pid) if re.match(OURS, title(pid))]
    assert len(actors) >= 4, "there must be something to leave behind"

    assert head.job("stop", "one").returncode == 0
    log = head.job("logs", "one").stdout
    assert "Traceback" not in log, log
    assert f"Resume with: {SUBMIT} {shlex.join(run.command[1:])}" in log
    wait_for(lambda: not any(map(title, actors)))
    kept = {path: path.read_bytes() for path in run.folder.glob("rollouts/step-*.parquet")}
    assert not Run(run.folder).finished, "it must have been stopped before its end"

    again = head.job("submit", *training)
    assert again.returncode == 0, again.stdout
    assert run.summary["state"] == "finished"
    assert all(path.read_bytes() == data for path, data in kept.items())


@pytest.mark.slow
def test_a_job_that_is_stopped_in_its_warm_start_leaves_no_worker(head: Head, tmp_path: Path) -> None:
    run = LocalDriver(tmp_path / "run", [*SMALL, "generator.engine=transformers", "warm_start.steps=60"])
    job = ("--working-dir", ".", "--", "python", *run.command[1:])
    head.job("submit", "--no-wait", "--submission-id=warm", *job)

    def workers() -> list[int]:
        return [pid for pid in descendants(head.process.pid) if re.match(r"ray::RayTrainWorker", title(pid))]

    wait_for(lambda: bool(workers()))
    left = workers()
    assert head.job("stop", "warm").returncode == 0
    log = head.job("logs", "warm").stdout
    assert "Traceback" not in log, log
    wait_for(lambda: not any(map(title, left)) and not workers(), 60)

    again = head.job("submit", *job)
    assert again.returncode == 0, again.stdout
    assert run.summary["state"] == "finished"
