"""Training waits for a checkpoint's copy, and for nothing else of it; what fails is told, and costs no data."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from ray.exceptions import RayActorError

from raypoly.core.errors import StorageError
from raypoly.run.store import acquire_lease
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.shards import Shard, ShardWriter
from tests.support.saved_checkpoint import save_checkpoint
from workflows.durability.checkpoint_writer import CheckpointWriter, Copy
from workflows.durability.checkpoints import Checkpoints


class Ranks:
    """One rank whose writing takes as long as a test wants."""

    def __init__(self) -> None:
        self.state = b"0"
        self.may_write = asyncio.Event()
        self.lost = False

    async def copy(self) -> Copy:
        state = self.state

        async def write(writer: ShardWriter) -> Sequence[Shard]:
            await self.may_write.wait()
            if self.lost:
                raise RayActorError
            return writer.write(0, [("state.bin", state)])

        return write


class Made:
    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(folder / "run")
        self.indexed_before: list[int] = []
        self.notes: list[str] = []
        self.saver = CheckpointWriter(
            Checkpoints(self.store, acquire_lease(self.store, "test")), self.index_before, self.notes.append
        )

    async def index_before(self, step: int) -> None:
        self.indexed_before.append(step)

    @property
    def steps(self) -> tuple[int, ...]:
        return self.saver.checkpoints.steps()


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_training_goes_on_while_the_copy_of_that_moment_is_written(made: Made) -> None:
    async def train() -> None:
        ranks = Ranks()
        await made.saver.begin(10, ranks.copy, {"objective.json": b"at 10"})
        ranks.state = b"of a later step"
        made.saver.check()
        assert made.steps == ()
        ranks.may_write.set()
        await made.saver.wait()

    asyncio.run(train())
    found = made.saver.checkpoints.newest_valid()
    assert found is not None
    assert (dict(found.reader.read(0))["state.bin"], found.read("objective.json")) == (b"0", b"at 10")
    assert (made.saver.saved_step, made.indexed_before) == (10, [10])


def test_next_checkpoint_waits_for_the_one_before(made: Made) -> None:
    async def train() -> None:
        ranks = Ranks()
        await made.saver.begin(10, ranks.copy, {})
        second = asyncio.create_task(made.saver.begin(20, ranks.copy, {}))
        await asyncio.sleep(0.05)
        assert not second.done()
        ranks.may_write.set()
        await second
        await made.saver.wait()

    asyncio.run(train())
    assert (made.steps, made.indexed_before) == ((10, 20), [10, 20])


def test_failed_write_is_raised_at_the_next_step_and_settles_nothing(made: Made) -> None:
    made.store.local_path("checkpoints").write_text("a file where a folder has to be")

    async def train() -> None:
        ranks = Ranks()
        ranks.may_write.set()
        await made.saver.begin(10, ranks.copy, {})
        await made.saver.idle()
        with pytest.raises(StorageError, match="checkpoints"):
            made.saver.check()
        made.saver.check()

    asyncio.run(train())
    assert (made.saver.saved_step, made.indexed_before) == (None, [])


def test_failed_write_is_only_told_on_the_way_out_of_another_failure(made: Made) -> None:
    made.store.local_path("checkpoints").write_text("a file where a folder has to be")

    async def train() -> None:
        ranks = Ranks()
        ranks.may_write.set()
        await made.saver.begin(10, ranks.copy, {})
        await made.saver.close()

    asyncio.run(train())
    assert "will be replayed" in made.notes[0]


def test_copy_that_is_lost_with_its_rank_is_left_out(made: Made) -> None:
    async def train() -> None:
        ranks = Ranks()
        ranks.lost = True
        ranks.may_write.set()
        await made.saver.begin(10, ranks.copy, {})
        await made.saver.wait()
        assert made.saver.saved_step is None
        ranks.lost = False
        await made.saver.begin(20, ranks.copy, {})
        await made.saver.wait()

    asyncio.run(train())
    assert (made.steps, made.saver.saved_step, made.indexed_before) == ((20,), 20, [20])
    assert "lost while the checkpoint of step 10" in made.notes[0]


def test_valid_checkpoint_of_the_step_is_not_written_again(made: Made) -> None:
    save_checkpoint(made.saver.checkpoints, 10, {"state.bin": b"first"})

    async def train() -> None:
        await made.saver.begin(10, Ranks().copy, {})
        await made.saver.wait()

    asyncio.run(train())
    assert made.saver.saved_step == 10
    found = made.saver.checkpoints.newest_valid()
    assert found is not None
    assert found.read("state.bin") == b"first"
