"""`raypoly train --rehearse`: every part is tried, and nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raypoly.core.errors import RaypolyError, SandboxError
from raypoly.core.settings import load
from raypoly.run.run_identity import resolve_run
from raypoly.run.store import open_store
from tests.support.local_driver import ROOT
from tests.support.ray_machines import Machines
from tests.support.s3_server import S3Server
from workflows.startup.rehearsal import Rehearsal, RehearsalFailed, _place_beside, rehearsal_config, try_part
from workflows.startup.rehearsal import rehearse as run_rehearsal

PARTS = (
    "judge, started",
    "sandbox, started",
    "reward functions, started",
    "engine, started",
    "learner, started",
    "judge, a gold group",
    "weights to the engine, verified",
    "one step",
    "engine, asleep where it has to be",
    "update without rows",
    "gradients of rows at their limits",
    "checkpoint, until it is written",
    "checkpoint, read back",
    "weights to the engine once more",
    "finished model, written",
)


def test_a_checkpoint_that_was_lost_with_its_learner_fails_the_rehearsal() -> None:
    """As on an H200 whose machine had no memory for it: a run only notes that, and goes on."""

    async def wait() -> None:
        """As `CheckpointWriter.wait` where the learner was lost."""

    writer = SimpleNamespace(wait=wait, saved_step=None)
    opened = SimpleNamespace(durability=SimpleNamespace(checkpoint_writer=writer))
    rehearsal = Rehearsal(cast(Any, opened), cast(Any, None))
    with pytest.raises(RaypolyError, match=r"lost while it wrote the checkpoint.*memory was full"):
        asyncio.run(rehearsal._checkpoint())
    writer.saved_step = 1
    asyncio.run(rehearsal._checkpoint())


def failing(error: Exception, name: str) -> str:
    async def work() -> None:
        raise error

    with pytest.raises(RehearsalFailed) as caught:
        asyncio.run(try_part(name, work()))
    assert caught.value.exit_code == 1
    return str(caught.value)


def test_a_part_that_fails_names_itself_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    said = failing(RuntimeError("CUDA out of memory. Tried to allocate 2.3 GiB."), "gradients of rows at their limits")
    assert said.startswith("The rehearsal failed at `gradients of rows at their limits`: RuntimeError: CUDA out of")
    assert "train.activation_checkpointing=layers" in said
    assert "FAILED" in capsys.readouterr().out


def test_an_error_that_says_what_to_do_is_told_as_it_is() -> None:
    wrapped = ExceptionGroup("tasks", [SandboxError("No user namespaces here: set scorer.isolation=none.")])
    assert failing(wrapped, "one step") == (
        "The rehearsal failed at `one step`: No user namespaces here: set scorer.isolation=none."
    )


def test_a_part_that_works_is_a_line_with_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> int:
        return 7

    assert asyncio.run(try_part("engine, started", work())) == 7
    assert capsys.readouterr().out.startswith("engine, started                      ok")


def test_a_rehearsal_asks_for_as_many_as_the_run_needs(tmp_path: Path) -> None:
    few = load(None, ["train.prompts_per_step=1000", f"run.dir={tmp_path / 'run'}"])
    with pytest.raises(RehearsalFailed, match=r"prompts_per_step=1000, but there are only \d+ training problems"):
        run_rehearsal(few, resolve_run(few))
    assert list(tmp_path.iterdir()) == []


def test_a_rehearsal_of_a_run_in_remote_storage_is_beside_it_and_leaves_nothing(s3: S3Server, tmp_path: Path) -> None:
    """So the learner's node sees it, whichever that is."""
    beside = f"s3://{s3.bucket}/runs/other?endpoint_override={s3.endpoint}&region=us-east-1"
    config = load(None, [f"run.dir={beside.replace('other', 'run')}", f"run.scratch={tmp_path}"], str)
    with _place_beside(resolve_run(config)) as place:
        small = resolve_run(rehearsal_config(config, place))
        store, lease = small.open()
        assert (str(small.location), small.location.place) == (place, s3.bucket)
        store.commit("steps/one", b"1")
        lease.release()
    runs = open_store(beside.replace("runs/other", "runs"), make=False)
    assert (runs.list(), store.workspace.exists()) == ((), False)


def rehearse(machines: Machines, folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raypoly.train", "--rehearse", *overrides, f"run.dir={folder}"]
    environment = {**os.environ, "RAY_ADDRESS": machines.address}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=1200)


def test_a_rehearsal_tries_every_part_foretells_the_run_and_leaves_nothing(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    rehearsed = rehearse(machines, tmp_path / "run", *small_run, "train.steps=1000")
    assert rehearsed.returncode == 0, rehearsed.stderr + rehearsed.stdout
    worked = re.findall(r"^(.+?) +ok +\d+\.\d s   in use: ", rehearsed.stdout, re.M)
    assert sorted(worked) == sorted(PARTS)
    assert "1,000 steps and evaluations: " in rehearsed.stdout
    assert "judge: without cost" in rehearsed.stdout
    assert list(tmp_path.iterdir()) == [], "neither a run's folder nor the rehearsal's"


@pytest.mark.slow
def test_a_judge_that_is_not_there_fails_the_rehearsal_with_what_to_do(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    away = ["judge.name=http", "judge.url=http://127.0.0.1:9/label"]
    rehearsed = rehearse(machines, tmp_path / "run", *small_run, *away)
    assert rehearsed.returncode == 1
    assert "The rehearsal failed at `judge, a gold group`: " in rehearsed.stderr
    assert "Traceback" not in rehearsed.stderr
    assert list(tmp_path.iterdir()) == []
