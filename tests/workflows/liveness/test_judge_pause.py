"""A judge that goes away pauses the run; the run goes on by itself and ends with the weights it would have had.

`RAYPOLY_OUTAGE=60` makes the outage a minute long.
"""

import asyncio
import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from raypoly import Run
from raypoly.analysis.reports.run_page import write_report
from raypoly.core.config import JudgeConfig
from raypoly.core.errors import Away, PausedTooLong
from tests.support.local_driver import ROOT, SMALL, LocalDriver
from tests.support.ray_machines import Machines
from workflows.liveness import judge_pause
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.observers.progress import Progress

Make = Callable[..., LocalDriver]
"""A run by its name, with overrides."""
OUTAGE = float(os.environ.get("RAYPOLY_OUTAGE", "3"))


class Server:
    """The structural judge behind a real socket."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, str(ROOT / "tests" / "support" / "judge_server.py"), "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 300
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise TimeoutError("the judge server did not come up")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def server() -> Iterator[Server]:
    """Not started yet; stopped at the end."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def driver(machines: Machines, server: Server, warm_model: Path, tmp_path: Path) -> Make:
    def make(name: str, *more: str) -> LocalDriver:
        url = f"judge.url=http://127.0.0.1:{server.port}"
        own = ["judge.name=http", url, "judge.probe_seconds=0.5", "generator.engine=transformers"]
        overrides = [*SMALL, *own, f"model.path={warm_model}", *more]
        return LocalDriver(tmp_path / name, overrides, {"RAY_ADDRESS": machines.address})

    return make


def test_a_pause_beyond_the_limit_exits_75_one_within_it_goes_on_and_neither_changes_anything(
    driver: Make, server: Server, reference: LocalDriver, tmp_path: Path
) -> None:
    limited = driver("run", "judge.max_pause=2")
    assert limited.finish() == 75, limited.log()
    assert "resume with the same command" in limited.log()

    server.start()
    told = tmp_path / "told"
    paused = driver("run", f"run.on_pause=echo $RAYPOLY_PAUSE_REASON >> {told}")
    paused.log_file = tmp_path / "paused.log"
    paused.start()
    assert paused.wait_for_commits(8)
    server.stop()
    _until(lambda: "Paused since" in paused.log(), paused)
    assert paused.summary["state"] == "paused"
    before = paused.commits()
    time.sleep(OUTAGE)
    assert paused.commits() <= before + 8, "nothing is trained on while the judge is away"
    server.start()
    assert paused.finish() == 0, paused.log()

    assert paused.digests() == reference.digests()
    assert paused.weights() == reference.weights()
    *before_it, pause = paused.summary["pauses"]
    assert len(before_it) == 1
    assert pause["seconds"] >= OUTAGE
    assert sum(row["paused_seconds"] for row in paused.rows()) == pytest.approx(pause["seconds"])
    assert reference.summary["pauses"] == []
    assert len(told.read_text().splitlines()) == 1


def test_a_pause_in_an_evaluation_and_one_that_a_kill_cut_off_are_told(driver: Make, server: Server) -> None:
    run = driver("run", "train.steps=1", "evaluate.every=1", "evaluate.judge=true")
    run.overrides = [*run.overrides, "problems.test=2", "problems.validation=0", "evaluate.samples=2"]
    run.start()
    _until(lambda: run.log().count("Paused since") == 1, run)
    run.kill()
    run.start()
    _until(lambda: run.log().count("Paused since") == 2, run)
    server.start()
    assert run.finish() == 0, run.log()

    cut, ended = run.summary["pauses"]
    assert cut["since"] < cut["interrupted"] <= ended["since"]
    assert "seconds" not in cut, "nobody knows how long it was"
    assert ended["seconds"] > 0
    assert "can't be reached" in cut["reason"]
    evaluations = [e for e in run.summary["evaluations"] if e["pauses"]]
    assert [e["pauses"] for e in evaluations] == [[ended]]
    assert sum(row["paused_seconds"] for row in run.rows()) == 0, "no step was held up"
    page = Path(write_report(Run(run.folder))).read_text()
    assert "the run was killed in it" in page
    assert f"{ended['seconds']:,.1f}" in page


def _until(true: Callable[[], bool], driver: LocalDriver) -> None:
    until = time.monotonic() + 900
    while not true():
        assert driver.lives, driver.log()
        assert time.monotonic() < until, driver.log()
        time.sleep(0.1)


async def test_a_pause_beyond_the_limit_names_the_stage_that_asks() -> None:
    async def away() -> None:
        raise Away("the server is gone")

    pause = JudgeOutagePause(JudgeConfig(max_pause=0.05, probe_seconds=0.01), Progress(Console(file=io.StringIO())))
    with pytest.raises(PausedTooLong, match=r"^What the stage mine asks stayed away for judge\.max_pause=0\.05 s"):
        await pause.ask("mine", away, away)


def test_a_command_that_does_not_end_holds_up_no_probe_and_ends_with_the_pause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(judge_pause, "COMMAND_SECONDS", 0.0)
    told, heard = tmp_path / "told", io.StringIO()
    command = f"cat; echo $$ > {told}.part; mv {told}.part {told}; sleep 1000"  # it reads what nobody writes

    async def probe() -> None:
        if not told.exists():
            raise Away("the server is gone")

    async def question() -> str:
        await probe()
        return "labels"

    async def main() -> None:
        pause = JudgeOutagePause(JudgeConfig(probe_seconds=0.01), Progress(Console(file=heard)), command)
        async with asyncio.timeout(60):
            assert await pause.ask("judge", question, probe) == "labels"
        assert not pause.is_paused

    asyncio.run(main())
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)
    assert "run.on_pause had not ended when the pause did, and was killed: cat;" in heard.getvalue()
