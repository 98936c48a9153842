"""What the journal promises about a step: durable, once, exact, and in order after any crash or damage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raypoly.core.errors import CorruptData, StaleEpoch, StorageError
from raypoly.core.values import Float64, Group
from raypoly.run.store import Lease, Store
from raypoly.run.store.rollout_files import read_evaluation
from raypoly.run.store.step_records import Applied, Record
from tests.support.sample_groups import make_group, same_group, stages
from workflows.durability.journal import AlreadyCommitted, Journal

T = TypeVar("T")
METRICS = {"step": 3, "reward": 0.1 + 0.2, "stages": {"generate": 1.5}, "paused": None}


def place(store: Store, key: str) -> Path:
    return Path(store.uri) / key


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def make_step(step: int, groups: int = 3, size: int = 4) -> tuple[list[Group], list[Float64], list[Float64]]:
    rng = np.random.default_rng(step)
    made = [make_group(step, slot, size, unjudged=slot == 1) for slot in range(groups)]
    rewards = [np.where(rng.random(size) < 0.2, np.nan, rng.random(size)) for _ in made]
    return made, rewards, [rng.standard_normal(size) for _ in made]


async def commit_all(journal: Journal, groups: list[Group]) -> None:
    async def one(group: Group) -> None:
        for record in stages(group):
            await journal.commit(record)

    await asyncio.gather(*map(one, groups))


async def complete(journal: Journal, step: int) -> None:
    groups, rewards, advantages = make_step(step)
    await commit_all(journal, groups)
    await journal.commit(Applied(step, "ab12", METRICS))
    await journal.seal_step(step, groups, rewards, advantages)


def test_committed_groups_come_back_bit_for_bit_at_the_stage_they_had(store: Store, lease: Lease) -> None:
    groups, _, _ = make_step(3)
    generated, scored, _ = stages(groups[0])

    async def work() -> None:
        journal = Journal(store)
        await commit_all(journal, groups[1:])
        await journal.commit(generated)
        await journal.commit(scored)
        await journal.close()

    run(work())
    found = Journal(store).step(3)
    assert list(found.groups) == [0, 1, 2]
    assert same_group(found.groups[0], groups[0].with_findings(judge=None))
    assert same_group(found.groups[1], groups[1])
    assert found.groups[1].unjudged
    assert same_group(found.groups[2], groups[2])
    assert found.applied is None
    assert (0, "judge") not in found.keys
    assert (1, "judge") in found.keys


def test_records_that_arrive_together_share_one_object(store: Store, lease: Lease) -> None:
    async def work() -> None:
        journal = Journal(store)
        await asyncio.gather(*(journal.commit(stages(make_group(1, slot))[0]) for slot in range(20)))

    run(work())
    assert store.list("journal/") == ("journal/step-000001/00001.arrow",)


def test_same_stage_of_a_slot_is_never_committed_twice(store: Store, lease: Lease) -> None:
    generated = stages(make_group(1, 0))[0]

    async def work() -> None:
        journal = Journal(store)
        await journal.commit(generated)
        with pytest.raises(AlreadyCommitted, match="generated of step 1, slot 0"):
            await journal.commit(generated)
        with pytest.raises(AlreadyCommitted):
            await Journal(store).commit(generated)
        await complete(journal, 2)
        with pytest.raises(AlreadyCommitted, match="step 2 is completed"):
            await journal.commit(stages(make_group(2, 0))[0])

    run(work())


def test_completed_step_is_one_file_that_gives_back_what_was_trained_on(store: Store, lease: Lease) -> None:
    run(complete(Journal(store), 7))
    assert store.list("journal/") == ()
    journal = Journal(store)
    assert journal.completed_steps() == (7,)
    found = journal.load_step(7)
    groups, rewards, advantages = make_step(7)
    assert all(map(same_group, found.groups, groups))
    assert [row.tobytes() for row in found.rewards] == [row.tobytes() for row in rewards]
    assert [row.tobytes() for row in found.advantages] == [row.tobytes() for row in advantages]
    assert found.applied == Applied(7, "ab12", METRICS, groups=3)


def test_rollout_file_is_read_by_pyarrow_alone(store: Store, lease: Lease) -> None:
    run(complete(Journal(store), 7))
    table = pq.read_table(place(store, "rollouts/step-000007.parquet"))
    columns = (
        "step slot problem_id rollout prompt_tokens tokens logprobs text finish_reason seed weight_version status "
        "tests_passed tests_total cpu_seconds detail canonical constructs growth strategy features failure repeatable "
        "label degenerate judge unjudged reward advantage"
    )
    assert " ".join(table.column_names) == columns
    assert table.num_rows == 12
    assert table.schema.field("tokens").type == pa.list_(pa.int32())
    assert table.schema.field("logprobs").type == pa.list_(pa.float32())
    metadata = pq.read_metadata(place(store, "rollouts/step-000007.parquet")).metadata
    (head,) = json.loads(metadata[b"steps"])
    assert (head["step"], head["digest"], head["groups"]) == (7, "ab12", 3)
    assert json.loads(head["metrics"]) == METRICS


def test_step_is_not_compacted_before_its_update_is_committed(store: Store, lease: Lease) -> None:
    groups, rewards, advantages = make_step(1)

    async def work() -> None:
        journal = Journal(store)
        await commit_all(journal, groups)
        with pytest.raises(ValueError, match="can't be sealed"):
            await journal.seal_step(1, groups, rewards, advantages)

    run(work())


def test_stale_driver_commits_nothing(store: Store, lease: Lease) -> None:
    journal = Journal(store)
    holder = json.loads(store.read("lease.json"))
    store.put_mutable("lease.json", json.dumps({**holder, "epoch": lease.epoch + 1}).encode())
    with pytest.raises(StaleEpoch, match="taken over"):
        run(journal.commit(stages(make_group(1, 0))[0]))
    assert store.list("journal/") == ()


def test_storage_error_reaches_every_waiter_and_all_who_come_later(store: Store, lease: Lease) -> None:
    folder = place(store, "journal/step-000001")

    async def work() -> list[BaseException | None]:
        journal = Journal(store)
        records: list[Record] = [stages(make_group(1, slot))[0] for slot in range(4)]
        await journal.commit(records[0])
        folder.rename(folder.with_name("away"))
        folder.write_text("a file where a folder has to be")
        together = await asyncio.gather(*map(journal.commit, records[1:3]), return_exceptions=True)
        folder.unlink()
        folder.with_name("away").rename(folder)
        return [*together, *await asyncio.gather(journal.commit(records[3]), return_exceptions=True)]

    assert [type(error) for error in run(work())] == [StorageError] * 3
    assert list(Journal(store).step(1).groups) == [0]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "foreign", "empty", "another step's"])
def test_damaged_journal_object_is_set_aside_and_the_rest_counts(store: Store, lease: Lease, damage: str) -> None:
    groups, _, _ = make_step(3)

    async def work(records: list[Record]) -> None:
        journal = Journal(store, window_seconds=0)
        for record in records:
            await journal.commit(record)

    run(work([*stages(groups[0]), *stages(groups[2])[:2]]))
    path = place(store, "journal/step-000003/00002.arrow")  # slot 0's verdicts
    data = path.read_bytes()
    bad = {
        "truncated": data[:-10],
        "flipped": data[:200] + bytes([data[200] ^ 4]) + data[201:],
        "foreign": b"PK\x03\x04" + bytes(500),
        "empty": b"",
        "another step's": None,
    }[damage]
    if bad is None:
        run(work([stages(make_group(4, 0))[0]]))
        bad = store.read("journal/step-000004/00001.arrow")
    path.write_bytes(bad)

    found = Journal(store).step(3)
    assert same_group(found.groups[0], groups[0].with_findings(score=None, judge=None))
    assert same_group(found.groups[2], groups[2].with_findings(judge=None))
    assert [damaged.key for damaged in store.damaged] == ["journal/step-000003/00002.arrow"]
    assert place(store, "damaged/journal/step-000003/00002.arrow").read_bytes() == bad
    run(work(list(stages(groups[0])[1:])))  # the lost stage, and what followed it, can be committed again
    assert same_group(Journal(store).step(3).groups[0], groups[0])


def test_step_with_a_damaged_rollout_file_can_be_done_again(store: Store, lease: Lease) -> None:
    run(complete(Journal(store), 7))
    path = place(store, "rollouts/step-000007.parquet")
    path.write_bytes(path.read_bytes()[:1000])
    journal = Journal(store)
    assert [damaged.key for damaged in store.damaged] == ["rollouts/step-000007.parquet"]
    with pytest.raises(CorruptData, match=r"step-000007\.parquet"):
        journal.load_step(7)
    assert journal.completed_steps() == ()
    run(complete(journal, 7))
    assert Journal(store).load_step(7).step == 7


def test_update_does_not_count_when_a_group_it_was_made_of_is_lost(store: Store, lease: Lease) -> None:
    groups, _, _ = make_step(3)

    async def work() -> None:
        journal = Journal(store, window_seconds=0)
        for group in groups:
            for record in stages(group):
                await journal.commit(record)
        await journal.commit(Applied(3, "ab12", METRICS))

    run(work())
    assert Journal(store).step(3).applied is not None
    place(store, "journal/step-000003/00001.arrow").write_bytes(b"")
    found = Journal(store).step(3)
    assert list(found.groups) == [1, 2]
    assert found.applied is None


def test_evaluation_is_committed_once_and_comes_back(store: Store, lease: Lease) -> None:
    payload = {"pass_at_k": {"1": 0.484}, "strategies_correct": 1.77}
    table = pa.table({"problem_id": ["a", "b"], "correct": [3, 128]})

    async def work() -> None:
        journal = Journal(store)
        assert not journal.evaluations()
        await journal.commit_evaluation(80, "test", payload, table)
        with pytest.raises(AlreadyCommitted, match="test at step 80"):
            await journal.commit_evaluation(80, "test", payload, table)

    run(work())
    journal = Journal(store)
    assert journal.evaluations() == {(80, "test"): payload}
    assert read_evaluation(store, 80, "test").table.equals(table)
    assert journal.completed_steps() == ()
    assert store.exists("rollouts/evaluation-test-step-000080.parquet")
