"""Which groups of a step the learner gets, and when; a replay that gives other weights is refused where bits must
repeat, and marked where they need not."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.calls import CallContext
from actors.learner import LearnerGroup
from actors.model_files import ModelFiles
from raypoly.core.errors import WeightsMismatch
from raypoly.core.settings import load
from raypoly.core.values import Verdict
from raypoly.learner.training_rows import TrainingRow
from raypoly.run.store import acquire_lease
from raypoly.run.store.local_store import LocalStore
from tests.support.sample_groups import make_group
from tests.support.timed_services import LocalActor
from tests.workflows.step.virtual_run import Recorder
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.journal import Journal
from workflows.startup.run_parts import NamedParts
from workflows.step.learner_session import LearnerSession
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import TrainingGroup, UpdateRows


def learning(folder: Path, notes: list[str], *overrides: str) -> LearnerSession:
    store = LocalStore(folder / "run")
    lease = acquire_lease(store, "test")
    journal = Journal(store)
    saver = CheckpointWriter(Checkpoints(store, lease), journal.index_before, notes.append)
    config, context = load(None, overrides, lambda text: None), CallContext()
    parts = NamedParts.build(config)
    rows = UpdateRows(config, parts.objective, parts.loss, parts.scaffold)
    learners = LearnerGroup(config, ModelFiles(folder / "model"), lambda rank: {}, context, rows.temperature)
    return LearnerSession(config.train, rows, learners, journal, saver, notes.append, context)


def test_other_weights_than_the_run_had_are_refused_on_a_cpu(tmp_path: Path) -> None:
    one = learning(tmp_path, [])
    one.check_digest(3, "abc", "abc", 1)
    with pytest.raises(WeightsMismatch, match="Replaying step 3 gave other weights") as refused:
        one.check_digest(3, "abc", "abd", 1)
    assert "\n" not in str(refused.value)
    assert one.drifted == []


@pytest.mark.parametrize(
    ("override", "advised"),
    [
        ((), True),
        (("loss.aggregation=token_mean",), True),
        (("loss.importance_cap=2",), False),
        (("loss.name=clipped_surrogate",), False),
    ],
)
def test_kernels_that_round_otherwise_are_told_and_remembered(
    override: tuple[str, ...], advised: bool, tmp_path: Path
) -> None:
    notes: list[str] = []
    one = learning(tmp_path, notes, *override)
    one.exact = False
    one.check_digest(3, "abc", "abd", 1)
    assert one.drifted == [3]
    assert len(notes) == 1
    assert "off-policy" in notes[0]
    assert ("loss.importance_cap" in notes[0]) is advised


def test_other_weights_on_another_number_of_ranks_are_told_on_a_cpu_too(tmp_path: Path) -> None:
    notes: list[str] = []
    one = learning(tmp_path, notes, "train.ranks=2")
    one.check_digest(3, "abc", "abd", 1)
    assert one.drifted == [3]
    assert "with train.ranks=1, now 2" in notes[0]
    with pytest.raises(WeightsMismatch, match="step 4"):
        one.check_digest(4, "abc", "abd", 2)


def told(folder: Path, order: Sequence[int], empty: Collection[int], *overrides: str) -> tuple[Recorder, list[int]]:
    """What the learner is told of a step whose slots fill in this order, and how many groups had passed after each
    call. The advantages of a slot's group are its number, from 1."""
    recorder, passed = Recorder(), list[int]()
    one = learning(folder, [], "train.rollouts=4", *overrides)
    one._learners._actors = [LocalActor(recorder)]

    async def main() -> None:
        slots: list[asyncio.Future[TrainingGroup | None]] = [asyncio.get_running_loop().create_future() for _ in order]
        update = asyncio.create_task(one.update(0, slots, Stopwatch(lambda stage, groups: passed.append(groups))))
        for slot in order:
            trained = TrainingGroup(make_group(0, slot, 4), np.ones(4), np.full(4, slot + 1.0))
            slots[slot].set_result(None if slot in empty else trained)
            if order != range(len(order)):
                await asyncio.sleep(0)
        await update

    asyncio.run(main())
    return recorder, passed


@given(st.permutations(range(9)), st.sampled_from([2, 3, 9]), st.sets(st.integers(0, 8), max_size=3))
def test_groups_are_taken_in_slot_order_whatever_is_ready_first(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], mini_batch: int, empty: set[int]
) -> None:
    sizes = (f"train.mini_batch_prompts={mini_batch}", "train.prompts_per_step=18", "loss.name=clipped_surrogate")
    recorder, passed = told(tmp_path_factory.mktemp("learning"), order, empty, *sizes)
    taken = [[slot + 1.0] * 4 for slot in range(9) if slot not in empty]
    batches = [taken[i : i + mini_batch] for i in range(0, len(taken), mini_batch)]
    assert recorder.told == [*(each for batch in batches for each in ("update", *batch)), "apply"][1:]
    assert passed[-1] == len(taken)


@pytest.mark.parametrize(("budget", "calls"), [(100_000, [5]), (1, [1] * 5)])
def test_what_is_ready_together_goes_together_as_far_as_the_token_budget(
    tmp_path: Path, budget: int, calls: list[int]
) -> None:
    recorder, _ = told(tmp_path, range(5), (), f"train.token_budget={budget}")
    assert recorder.calls == calls


def test_a_learner_that_is_replaced_between_two_calls_gets_the_step_from_its_beginning(tmp_path: Path) -> None:
    """Whoever wanted weights meanwhile may have found it lost."""
    one = learning(tmp_path, [], "train.rollouts=4", "train.token_budget=1")
    new, passed = Recorder(), list[int]()

    class Lost(Recorder):
        async def accumulate(self, rows: Sequence[TrainingRow]) -> None:
            await super().accumulate(rows)
            if len(self.calls) == 2:
                one._learners.started += 1
                one._learners._actors = [LocalActor(new)]

    one._learners._actors = [LocalActor(Lost())]

    async def main() -> None:
        slots: list[asyncio.Future[TrainingGroup | None]] = [
            asyncio.get_running_loop().create_future() for _ in range(4)
        ]
        for slot, future in enumerate(slots):
            future.set_result(TrainingGroup(make_group(0, slot, 4), np.ones(4), np.full(4, slot + 1.0)))
        await one.update(0, slots, Stopwatch(lambda stage, groups: passed.append(groups)))

    asyncio.run(main())
    assert new.told == [*([slot + 1.0] * 4 for slot in range(4)), "apply"]
    assert passed == [1, 2, 1, 2, 3, 4]


@pytest.mark.parametrize("loss", ["flowrl", "policy_gradient"])
def test_a_loss_that_fits_advantages_never_sees_zeros_that_are_unknown(loss: str) -> None:
    """Others leave rows of zeros out themselves. A skipped group has no gradient, of KL and entropy terms neither."""
    fits = loss == "flowrl"
    known, unjudged = make_group(0, 0, 4), make_group(0, 1, 4, unjudged=True)
    aside = known.with_findings(score=(Verdict("infra", 0, 1, 0.0),) * 4)
    for objective, needs_labels in (("poly_epo", True), ("grpo", False)):
        config = load(None, [f"objective.name={objective}", f"loss.name={loss}"], lambda text: None)
        parts = NamedParts.build(config)
        rows = UpdateRows(config, parts.objective, parts.loss, parts.scaffold)
        counts = [rows.counts(TrainingGroup(group, np.zeros(4), np.zeros(4))) for group in (known, unjudged, aside)]
        assert counts == [True, not (fits and needs_labels), False]
