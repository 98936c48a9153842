"""A checkpoint is there whole, or not at all; the newest whole one is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raypoly.core.errors import CorruptData, StaleEpoch, StorageError
from raypoly.run.store import acquire_lease
from raypoly.run.store.local_store import LocalStore
from tests.support.saved_checkpoint import save_checkpoint
from workflows.durability.checkpoints import Checkpoints


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "run")


@pytest.fixture
def checkpoints(store: LocalStore) -> Checkpoints:
    return Checkpoints(store, acquire_lease(store, "test"))


def contents(step: int) -> dict[str, bytes]:
    return {"model.safetensors": bytes([step]) * 1000, "state/optimizer.bin": b"moments", "state/order.json": b"{}"}


def test_newest_checkpoint_comes_back_whole(checkpoints: Checkpoints) -> None:
    assert checkpoints.newest_valid() is None
    for step in (10, 20):
        save_checkpoint(checkpoints, step, contents(step))
    found = checkpoints.newest_valid()
    assert found is not None
    assert (found.step, found.manifest.epoch) == (20, 1)
    assert {name: found.read(name) for name in found.files} == contents(20)
    assert (found.folder / "state" / "optimizer.bin").read_bytes() == b"moments"


@pytest.mark.parametrize("name", ["model.safetensors", "state/order.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_damaged_checkpoint_is_skipped_and_reported(
    store: LocalStore, checkpoints: Checkpoints, name: str, damage: str
) -> None:
    for step in (10, 20):
        save_checkpoint(checkpoints, step, contents(step))
    path = store.local_path(f"checkpoints/step-000020/{name}")
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-1] + (bytes([data[-1] ^ 1]) if damage == "flipped" else b""))
    reader = Checkpoints(store).newest_valid()
    assert reader is not None
    assert reader.step == 10
    assert not store.damaged  # a reader touches nothing
    found = checkpoints.newest_valid()
    assert found == reader
    assert bool(store.damaged) == ((name, damage) != ("manifest.json", "missing"))
    save_checkpoint(checkpoints, 20, contents(20))
    newest = checkpoints.newest_valid()
    assert newest is not None
    assert newest.step == 20


def test_checkpoint_whose_writer_died_half_way_is_not_there_and_can_be_saved_again(
    store: LocalStore, checkpoints: Checkpoints
) -> None:
    save_checkpoint(checkpoints, 10, contents(10))
    store.commit("checkpoints/step-000020/model.safetensors", b"other bytes than the next attempt's")
    found = checkpoints.newest_valid()
    assert found is not None
    assert found.step == 10
    assert save_checkpoint(checkpoints, 20, contents(20)).read("model.safetensors") == contents(20)["model.safetensors"]


def test_valid_checkpoint_is_never_replaced(checkpoints: Checkpoints) -> None:
    first = save_checkpoint(checkpoints, 10, contents(10))
    assert save_checkpoint(checkpoints, 10, contents(11)) == first
    assert first.read("model.safetensors") == contents(10)["model.safetensors"]


def test_newest_three_are_kept(store: LocalStore, checkpoints: Checkpoints) -> None:
    for step in (10, 20, 30, 40):
        save_checkpoint(checkpoints, step, contents(step))
    assert checkpoints.steps() == (20, 30, 40)
    assert store.list("checkpoints/step-000010/") == ()


def test_checkpoints_to_keep_for_good_stay_beside_the_newest(store: LocalStore) -> None:
    checkpoints = Checkpoints(store, acquire_lease(store, "test"), keep_last=2, keep_every=30)
    for step in range(10, 100, 10):
        save_checkpoint(checkpoints, step, contents(step))
    assert checkpoints.steps() == (30, 60, 80, 90)


def test_newest_that_does_not_come_back_drops_nothing(store: LocalStore, checkpoints: Checkpoints) -> None:
    for step in (10, 20, 30):
        save_checkpoint(checkpoints, step, contents(step))
    writer = checkpoints.prepare(40)
    assert writer is not None
    shards = writer.write(0, [("optimizer.bin", b"moments")])
    store.local_path(f"checkpoints/step-000040/{shards[0].name}").write_bytes(b"moment?")
    with pytest.raises(CorruptData, match="step-000040"):
        checkpoints.commit(writer, shards, {})
    assert checkpoints.steps() == (10, 20, 30)


def test_older_ones_stay_until_a_newer_one_is_whole(store: LocalStore, checkpoints: Checkpoints) -> None:
    for step in (10, 20, 30):
        save_checkpoint(checkpoints, step, contents(step))
    blocker = store.local_path("checkpoints/step-000040")
    blocker.write_text("a file where a folder has to be")
    with pytest.raises(StorageError, match="step-000040"):
        save_checkpoint(checkpoints, 40, contents(40))
    assert checkpoints.steps() == (10, 20, 30)


def test_reader_and_overtaken_driver_save_nothing(store: LocalStore, checkpoints: Checkpoints) -> None:
    with pytest.raises(StaleEpoch, match="reading only"):
        save_checkpoint(Checkpoints(store), 10, contents(10))
    holder = json.loads(store.read("lease.json"))
    store.put_mutable("lease.json", json.dumps({**holder, "epoch": 9}).encode())
    with pytest.raises(StaleEpoch, match="taken over"):
        save_checkpoint(checkpoints, 10, contents(10))
    assert checkpoints.steps() == ()
