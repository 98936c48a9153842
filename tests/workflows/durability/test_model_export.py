"""A finished run's model: written by the learner straight to the run's store, whole or not there."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from actors.learner import LearnerActor
from actors.model_files import ModelFiles
from raypoly.core.errors import StaleEpoch
from raypoly.core.settings import load
from raypoly.run.store import acquire_lease, open_store
from raypoly.run.store.shards import MODEL, ModelWriter
from raypoly.run.store.store import PART, Pieces
from tests.support.local_driver import ROOT
from tests.support.random_model import random_model
from tests.support.s3_server import Fault, S3Server
from tests.support.stopping_disk import Stopped, StoppingDisk
from tests.workflows.durability.model_export import TOKENIZER, export_model


def rank_of(model: Path, *overrides: str) -> Callable[..., Any]:
    """Rank 0 of a learner in this process. It answers as its actor does."""
    actor = LearnerActor(ModelFiles(model), load(None, [f"model.path={model}", *overrides], lambda note: None), 1.0)
    actor.setup(None)

    async def ask(stage: str, question: Callable[..., Any], *arguments: Any) -> Any:
        return question(actor, *arguments)

    return ask


def found(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (run / MODEL).glob("[!.]*")}


def test_the_folder_is_what_transformers_saves_and_the_tokenizer(tmp_path: Path) -> None:
    model = random_model(tmp_path / "start", tied=True)
    asyncio.run(export_model(tmp_path / "run", rank_of(model)))
    AutoModelForCausalLM.from_pretrained(model).save_pretrained(tmp_path / "saved")
    assert (
        found(tmp_path / "run") == {file.name: file.read_bytes() for file in (tmp_path / "saved").iterdir()} | TOKENIZER
    )


def test_killed_at_any_moment_it_is_whole_or_not_there_and_the_next_start_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at a call of the disk, by the driver or by the rank, with another model there before."""
    model, disk = random_model(tmp_path / "start"), StoppingDisk()
    monkeypatch.setattr("raypoly.run.store.local_store.Disk", lambda: disk)
    ask, half = rank_of(model), rank_of(model, "run.model_dtype=bfloat16")
    asyncio.run(export_model(tmp_path / "whole", ask))
    whole = found(tmp_path / "whole")
    asyncio.run(export_model(tmp_path / "run", half))
    before, began = found(tmp_path / "run"), disk.calls
    assert before["model.safetensors"] != whole["model.safetensors"]
    asyncio.run(export_model(tmp_path / "run", ask))
    absent, last = 0, disk.calls - began
    for call in {*range(1, 25), *range(25, last - 25, 7), *range(last - 25, last + 1)}:  # pieces are all alike
        for name, content in before.items():
            (tmp_path / "run" / MODEL).mkdir(exist_ok=True)
            (tmp_path / "run" / MODEL / name).write_bytes(content)
        disk = StoppingDisk(at=call)
        with pytest.raises(Stopped):
            asyncio.run(export_model(tmp_path / "run", ask))
        for half_written in (tmp_path / "run").rglob(".*.part"):  # as a start does whose process is another
            half_written.unlink()
        left = found(tmp_path / "run")
        absent += "config.json" not in left
        assert "config.json" not in left or left in (before, whole), f"half a model after call {call}"
    assert absent > 10
    disk = StoppingDisk()
    asyncio.run(export_model(tmp_path / "run", ask))
    assert found(tmp_path / "run") == whole


def pieces(letter: bytes, count: int, before: Callable[[int], None] = lambda number: None) -> Pieces:
    """So many of the largest pieces. `before` is called with each one's number."""

    def made() -> Iterator[bytes]:
        for number in range(count):
            before(number)
            yield letter * PART

    return Pieces(count * PART, made)


@pytest.mark.parametrize("remote", [False, True])
def test_rank_of_a_driver_that_was_overtaken_in_the_middle_replaces_nothing(
    tmp_path: Path, s3: S3Server, remote: bool
) -> None:
    place = s3.uri("runs/mine") if remote else str(tmp_path / "run")
    store = open_store(place)
    lease = acquire_lease(store, "first")
    writer = ModelWriter(store.location, store.options, lease.epoch)
    writer.write("model.safetensors", pieces(b"a", 3))
    if remote:  # a part that fails is sent again, and so is the whole file where the server has forgotten it
        s3.faults.append(Fault("error", at=4))
        writer.write("model.safetensors", pieces(b"b", 5))
        assert [request.method for request in s3.requests if request.struck] == ["PUT"]
    held = store.digest(f"{MODEL}model.safetensors")
    assert held[1] == (5 if remote else 3) * PART
    later = []

    def take_over() -> None:
        lease.release()
        later.append(acquire_lease(open_store(place), "second"))

    def overtake(number: int) -> None:
        if number == 2:  # another machine does this
            thread = threading.Thread(target=take_over)
            thread.start()
            thread.join()

    with pytest.raises(StaleEpoch, match="was taken over"):
        writer.write("model.safetensors", pieces(b"c", 4, overtake))
    assert store.digest(f"{MODEL}model.safetensors") == held
    assert not list(tmp_path.rglob("*.part"))
    later[0].release()


def measured(folder: Path, mib: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.workflows.durability.model_export", str(folder), str(mib)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    result: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
def test_neither_driver_nor_actor_grows_with_the_model(tmp_path: Path) -> None:
    """As bytes through Ray, a model of 400 MiB cost the driver 400 MiB and the actor 817."""
    took = measured(tmp_path, 200)
    assert took["model"] > 180 << 20
    assert took["driver"] < 20 << 20
    assert took["actor"] < 40 << 20
