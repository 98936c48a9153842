"""A long run opens by few reads, in few objects, and gives back every step from wherever it is kept by now."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raypoly.core.errors import CorruptData
from raypoly.run.store import Lease, open_store
from raypoly.run.store.catalogue import completed_steps, index_spans
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.rollout_files import RolloutFiles
from tests.support.run_with_history import completed_step, results_of, row_of, same_step, table_of
from tests.support.stopping_disk import QuickDisk
from workflows.durability.history import History


class CountingStore(LocalStore):
    """Counts reads by folder."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, QuickDisk())
        self.reads: Counter[str] = Counter()

    def read(self, key: str) -> bytes:
        self.reads[key.partition("/")[0]] += 1
        return super().read(key)


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(tmp_path / "run")


def grow(store: LocalStore, lease: Lease, steps: int, every: int = 10, block: int = 20) -> History:
    history = History(store, block)
    for step in range(steps):
        history.add(completed_step(step))
        if (step + 1) % every == 0:
            history.index_before(step + 1)
            history.add_evaluation(step + 1, "validation", results_of(step + 1), table_of(step + 1))
    return history


@given(st.integers(0, 30_000))
def test_index_spans_follow_each_other_and_are_few(settled: int) -> None:
    found = index_spans(settled)
    covered = [step for span in found for step in (span.first, span.last + 1)]
    assert covered[::2] == [0, *covered[1:-1:2]][: len(found)]
    assert settled - (found[-1].last + 1 if found else 0) < 10
    assert all(span.first % len(span) == 0 for span in found)
    assert all(count <= 9 for size, count in Counter(map(len, found)).items() if size < 10_000)


def test_opening_reads_segments_and_the_newest_steps_alone(store: CountingStore, lease: Lease) -> None:
    grow(store, lease, 127)
    store.reads.clear()
    history = History(store, 20)
    assert store.reads["index"] == 3  # 0-99, 100-109, 110-119
    assert store.reads["rollouts"] == 7 + 1  # steps 120 to 126 and the evaluation at 120
    assert history.steps == completed_steps(store) == tuple(range(127))
    assert [history.head(step).applied.metrics for step in history.steps] == [row_of(step) for step in range(127)]  # type: ignore[union-attr]
    assert dict(history.evaluations) == {(step, "validation"): results_of(step) for step in range(10, 121, 10)}
    assert len(store.list("rollouts/step")) == 6 + 7  # six bundles of twenty, seven steps


def test_every_step_is_read_bit_for_bit_from_its_file_or_its_bundle(store: CountingStore, lease: Lease) -> None:
    grow(store, lease, 45)
    history, files = History(store, 20), RolloutFiles(store)
    for step in range(45):
        assert same_step(history.load(step), completed_step(step))
        assert same_step(files.step(step), completed_step(step))
    assert pq.read_table(store.fetch("rollouts/steps-000000-000019.parquet"))["step"].to_pylist() == [
        step for step in range(20) for _ in range(2)
    ]


def test_reading_the_steps_of_a_bundle_reads_it_once(store: CountingStore, lease: Lease) -> None:
    grow(store, lease, 40)
    files = RolloutFiles(store)
    store.reads.clear()
    for step in range(20):
        files.table(step)
    assert store.reads["rollouts"] == 1


def test_lost_index_is_made_again_from_the_rollouts(store: CountingStore, lease: Lease) -> None:
    grow(store, lease, 130)
    index = {key: store.read(key) for key in store.list("index/")}
    for key in index:
        store.delete(key)
    history = History(store, 20)
    history.index_before(130)
    assert {key: store.read(key) for key in store.list("index/")} == index


def test_rows_outlive_the_rollouts_of_a_damaged_bundle(store: CountingStore, lease: Lease) -> None:
    grow(store, lease, 60)
    path = store.root / "rollouts" / "steps-000020-000039.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    history = History(store, 20)
    assert not store.damaged  # a bundle is settled: nothing that a start needs is in it alone
    with pytest.raises(CorruptData, match=r"steps-000020-000039\.parquet is damaged"):
        history.load(25)
    again = History(store, 20)
    assert again.steps == (*range(20), *range(40, 60))
    assert all(again.head(step) is not None for step in range(60))
    again.index_before(60)
    assert same_step(again.load(59), completed_step(59))


def test_damaged_old_step_leaves_a_hole_and_its_neighbours_are_bundled(store: CountingStore, lease: Lease) -> None:
    grow(store, lease, 19)
    (store.root / "rollouts" / "step-000005.parquet").write_bytes(b"")
    history = History(store, 20)
    assert 5 in history  # it is indexed: nobody has read its rollouts yet
    history.add(completed_step(19))
    history.index_before(20)
    assert [damaged.key for damaged in store.damaged] == ["rollouts/step-000005.parquet"]
    assert store.list("rollouts/step") == (
        "rollouts/steps-000000-000004.parquet",
        "rollouts/steps-000006-000019.parquet",
    )
    assert same_step(History(store, 20).load(6), completed_step(6))


def test_rollouts_of_another_run_under_a_settled_steps_name_are_set_aside(
    store: CountingStore, lease: Lease, tmp_path: Path
) -> None:
    grow(store, lease, 15)
    other = open_store(tmp_path / "other")
    step = completed_step(5)
    History(other).add(replace(step, applied=replace(step.applied, metrics={**step.applied.metrics, "reward": 9.0})))
    (store.root / "rollouts" / "step-000005.parquet").write_bytes(other.read("rollouts/step-000005.parquet"))
    with pytest.raises(CorruptData, match="step 5 are another run's"):
        History(store, 20).load(5)
    assert 5 not in History(store, 20)
