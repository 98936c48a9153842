"""The doctor shows what a live run does now, or says in a sentence why it can't; and it never waits for long."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path

import pytest

from raypoly.cli import main
from raypoly.run.store import acquire_lease, open_store
from raypoly.run.store.lease import LeaseState
from tests.support import run_with_history as made
from tests.support.faulty_server import Server, running
from tests.support.local_driver import LocalDriver, wait_for
from workflows.doctor import live_run
from workflows.doctor.live_run import look_at_run

ASKING = r"It does now: calls in flight judge \d, 0 programs wait for scorers \(0 busy, 1 idle, 0 starting\), "
REMOTE = LeaseState(1, True, "held by another machine's driver")


def told(run: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What the doctor prints of a sound run."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--run", str(run), *options])
    assert not ended.value.code
    return capsys.readouterr().out


def test_stage_queue_and_actors_of_a_live_run_are_told(
    small_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with running(Server(latency=90)) as server:
        judge = ["judge.name=openai", f"judge.base_url={server.url}", "judge.model=marker", "judge.api_key_env=KEY"]
        driver = LocalDriver(tmp_path / "run", [*small_run, *judge, f"judge.cache_dir={tmp_path}"], {"KEY": "sk-live"})
        driver.start()
        wait_for(lambda: bool(server.bodies) or not driver.lives)
        text = told(driver.folder, capsys)
        while not re.search(ASKING, text) and driver.lives:  # until Ray has brought the newest numbers to its exporter
            text = told(driver.folder, capsys)
        driver.kill()
    assert re.search(ASKING, text), text
    assert "Its actors: generator, learner, scorer-0." in text
    after = told(driver.folder, capsys)
    assert "It does now" not in after
    assert "What it does now" not in after


def test_a_live_run_whose_ray_is_not_known_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    made.write_run_with_history(tmp_path / "run", tmp_path / "old")
    acquire_lease(open_store(tmp_path / "run"), "a driver at work")
    assert "What it does now is not known here: set RAY_ADDRESS to its cluster." in told(tmp_path / "run", capsys)
    live = json.loads(told(tmp_path / "run", capsys, "--json"))["live"]
    assert live["why_not"].startswith("What it does now is not known here")


def test_a_closed_port_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{bound.getsockname()[1]}")
        (sentence,) = look_at_run("mine", REMOTE).sentences
    assert "nothing answers at RAY_ADDRESS=127.0.0.1:" in sentence


def test_a_cluster_that_hangs_is_left_after_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_run, "SECONDS", 6.0)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # connections are made, and nothing is ever said
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{listening.getsockname()[1]}")
        began = time.monotonic()
        (sentence,) = look_at_run("mine", REMOTE).sentences
    assert "gave no answer in 6 s" in sentence
    assert time.monotonic() - began < 15
