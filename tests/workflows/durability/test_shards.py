"""Ranks write their own files; the driver's manifest makes them one checkpoint, or nothing does."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from raypoly.algorithms.losses import build
from raypoly.core.config import TrainConfig
from raypoly.core.errors import CorruptData, StaleEpoch, UsageError
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.ranks import Ranks
from raypoly.rollouts.engines import Weights
from raypoly.run.store import acquire_lease
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.shards import RunWitness, Shard, ShardWriter
from tests.raypoly.learner.test_learner import learner
from tests.support.random_model import random_model
from tests.support.random_rows import NORMALISERS, random_rows
from tests.support.rank_processes import RankProcesses
from tests.support.saved_checkpoint import save_checkpoint
from tests.workflows.durability.shard_ranks import parts_of, write, write_and_die
from workflows.durability.checkpoints import Checkpoints

RANKS = 3


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "run")


def test_each_rank_writes_and_reads_its_own_in_its_own_process(store: LocalStore) -> None:
    checkpoints = Checkpoints(store, acquire_lease(store, "test"))
    writer = checkpoints.prepare(10, RANKS)
    assert writer is not None
    with ProcessPoolExecutor(RANKS, mp_context=multiprocessing.get_context("spawn")) as pool:
        written = list(pool.map(write, [writer] * RANKS, range(RANKS)))
    assert checkpoints.newest_valid() is None, "without a manifest nothing is there"
    checkpoints.commit(writer, [shard for shards in written for shard in shards], {"objective.json": b"{}"})
    found = checkpoints.newest_valid()
    assert found is not None
    assert found.reader.ranks == RANKS
    assert [dict(found.reader.read(rank)) for rank in range(RANKS)] == [dict(parts_of(rank)) for rank in range(RANKS)]
    assert found.read("objective.json") == b"{}"


def test_checkpoint_whose_rank_dies_half_way_is_none_and_is_cleaned_away(store: LocalStore) -> None:
    checkpoints = Checkpoints(store, acquire_lease(store, "test"))
    save_checkpoint(checkpoints, 5, {"model.bin": b"5"})
    writer = checkpoints.prepare(10, RANKS)
    assert writer is not None
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_and_die, args=(writer, rank)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 9, 0]
    assert len(store.list("checkpoints/step-000010/")) == 2 * RANKS - 1
    found = checkpoints.newest_valid()
    assert found is not None
    assert found.step == 5
    save_checkpoint(checkpoints, 15, {"model.bin": b"15"})
    assert store.list("checkpoints/step-000010/") == ()
    assert checkpoints.steps() == (5, 15)


def test_ranks_that_are_missing_make_no_checkpoint(store: LocalStore) -> None:
    checkpoints = Checkpoints(store, acquire_lease(store, "test"))
    writer = checkpoints.prepare(10, RANKS)
    assert writer is not None
    with pytest.raises(ValueError, match="all 3 ranks"):
        checkpoints.commit(writer, [*write(writer, 0), *write(writer, 2)], {})
    with pytest.raises(ValueError, match="all 3 ranks"):
        checkpoints.commit(writer, [*write(writer, 0), *write(writer, 1)], {})
    assert checkpoints.steps() == ()


def test_late_shards_of_an_overtaken_driver_spoil_nothing(store: LocalStore) -> None:
    lease = acquire_lease(store, "first")
    old = Checkpoints(store, lease).prepare(10)
    assert old is not None
    taken_over: list[Checkpoints] = []

    def parts() -> Iterator[tuple[str, bytes]]:
        yield "optimizer.bin", b"old"
        lease.release()
        checkpoints = Checkpoints(store, acquire_lease(store, "second"))
        writer = checkpoints.prepare(10)
        assert writer is not None
        shards = writer.write(0, [("optimizer.bin", b"new"), ("rng.bin", b"new")])
        checkpoints.commit(writer, shards, {})
        taken_over.append(checkpoints)
        yield "rng.bin", b"old, and late"

    old.write(0, parts())
    (checkpoints,) = taken_over
    found = checkpoints.newest_valid()
    assert found is not None
    assert (found.step, found.manifest.epoch) == (10, 2)
    assert dict(found.reader.read(0)) == {"optimizer.bin": b"new", "rng.bin": b"new"}
    with pytest.raises(StaleEpoch, match="epoch 2"):
        write(old, 0)
    for step in (20, 30, 40):
        save_checkpoint(checkpoints, step, {"model.bin": b"later"})
    assert store.list("checkpoints/step-000010/") == ()


def test_machine_that_does_not_see_the_run_says_so(store: LocalStore, tmp_path: Path) -> None:
    writer = Checkpoints(store, acquire_lease(store, "test")).prepare(10)
    assert writer is not None
    store.root.rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="does not see the run"):
        write(writer, 0)
    assert not store.root.exists()


def test_a_folder_of_the_same_path_on_another_machine_is_not_the_run(store: LocalStore, tmp_path: Path) -> None:
    store.commit("starts/epoch-000001.json", b"ours")
    witness = RunWitness(store.location, store.options, "starts/epoch-000001.json", b"ours")
    witness.find("10.0.0.7")
    store.root.rename(tmp_path / "elsewhere")
    for start in (None, b"another"):  # that of a run there
        if start is not None:
            LocalStore(store.root).commit("starts/epoch-000001.json", start)
        with pytest.raises(UsageError, match=rf"^Node 10\.0\.0\.7, .* does not see {store.uri} .*: give a run\.dir"):
            witness.find("10.0.0.7")


def test_damaged_shard_is_not_read(store: LocalStore) -> None:
    checkpoints = Checkpoints(store, acquire_lease(store, "test"))
    writer = checkpoints.prepare(10)
    assert writer is not None
    found = checkpoints.commit(writer, write(writer, 0), {})
    store.local_path(f"checkpoints/step-000010/{found.files[0]}").write_bytes(b"other")
    with pytest.raises(CorruptData, match="optimizer-epoch-000001-rank-00000"):
        found.reader.read(0)


@pytest.mark.parametrize("loss", ["policy_gradient", "flowrl"])
def test_checkpoint_opens_as_a_hugging_face_folder(store: LocalStore, tmp_path: Path, loss: str) -> None:
    """With what a loss trains beside the policy, too, which is in a file that the index does not name."""
    folder = random_model(tmp_path / "model")
    one = PolicyLearner(folder, TrainConfig(), build(loss), 1.0)
    one.begin(0, NORMALISERS)
    one.accumulate(random_rows())
    one.apply()
    checkpoints = Checkpoints(store, acquire_lease(store, "test"))
    writer = checkpoints.prepare(1)
    assert writer is not None
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "tokenizer")
    tokenizer = {file.name: file.read_bytes() for file in (tmp_path / "tokenizer").iterdir()}
    shards = writer.write(0, one.snapshot().parts())
    found = checkpoints.commit(writer, shards, {**one.pretrained_config(), **tokenizer})
    assert ("loss_head.safetensors" in [shard.part for shard in shards]) is (loss == "flowrl")
    other = PolicyLearner(folder, TrainConfig(), build(loss), 1.0)
    other.load(*found.reader.share(0, 1))
    assert other.save() == one.save()
    place = store.root / "checkpoints" / "step-000001"
    model = AutoModelForCausalLM.from_pretrained(place)
    assert model.dtype == torch.float32
    weights = one.export()
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(tensor, torch.from_numpy(weights[name])) for name, tensor in model.state_dict().items())
    assert AutoTokenizer.from_pretrained(place)("def f(n):")["input_ids"]


def update_and_write(ranks: Ranks, folder: Path, writer: ShardWriter) -> tuple[tuple[Shard, ...], Weights]:
    one = PolicyLearner(folder, TrainConfig(), build("policy_gradient"), 1.0, ranks=ranks)
    one.begin(0, NORMALISERS)
    one.accumulate(random_rows())
    one.apply()
    return writer.write(ranks.rank, one.snapshot().parts()), one.export()


def test_checkpoint_of_two_ranks_opens_as_a_hugging_face_folder_and_loads_on_one(
    store: LocalStore, tmp_path: Path
) -> None:
    folder = random_model(tmp_path / "model")
    checkpoints = Checkpoints(store, acquire_lease(store, "test"))
    writer = checkpoints.prepare(1, 2)
    assert writer is not None
    with RankProcesses() as together:
        (first, weights), (second, _) = together.run(2, update_and_write, folder, writer)
    assert [shard.part for shard in (*first, *second)] == [
        "model.safetensors",
        "optimizer.safetensors",
        "learner.json",
        "model.safetensors",
        "optimizer.safetensors",
    ]
    one = learner(folder)
    found = checkpoints.commit(writer, [*first, *second], one.pretrained_config())
    opened = AutoModelForCausalLM.from_pretrained(store.root / "checkpoints" / "step-000001").state_dict()
    assert opened.keys() == weights.keys()
    assert all(torch.equal(tensor, torch.from_numpy(weights[name])) for name, tensor in opened.items())
    one.load(*found.reader.share(0, 1))
    assert one.version == 1
    assert [len(found.reader.share(rank, 3)) for rank in range(3)] == [1, 1, 0]
