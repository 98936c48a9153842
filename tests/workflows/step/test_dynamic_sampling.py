"""What a step takes in place of groups that teach nothing, and that a stop anywhere in it changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.errors import UsageError
from raypoly.data.problem_order import EpochOrder
from tests.support.timed_run import close_run, timed_problems
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import Taken, facts, open_virtual, stopped_after, taken
from workflows.train import Training

REFILL = "train.refill=3"


def order() -> list[str]:
    """The problems' ids in the order in which steps take them."""
    found = EpochOrder(timed_problems(32), 4, 0)
    return [found.at(place)[1].id for place in range(64)]


def run_of(folder: Path, dull: Collection[str], *overrides: str, count: int = 1) -> Taken:
    return taken(open_virtual(folder, dull, overrides), count)


def test_further_problems_of_the_order_take_the_place_of_those_that_teach_nothing(tmp_path: Path) -> None:
    ids = order()
    run = run_of(tmp_path, {ids[0], ids[2], ids[5]}, REFILL, count=2)
    one, two = run.steps
    assert [group.problem_id for group in one.groups] == ids[:7]
    assert run.submitted[:3] == [[0, 1, 2, 3], [4, 5], [6]], "each round is one submission, in slot order"
    assert [group.problem_id for group in two.groups] == ids[7:11], "the next step begins behind them"
    assert [step.applied.metrics["refilled"] for step in (one, two)] == [3, 0]
    assert [step.applied.metrics["problems_taken"] for step in (one, two)] == [7, 11]
    assert [slot for slot, each in enumerate(one.advantages) if not each.any()] == [0, 2, 5]
    assert one.applied.metrics["zero_advantage"] == pytest.approx(3 / 7)
    assert run.learner.told[:5] == [[0.5, -0.5, 0.5, -0.5]] * 4 + ["apply"], "those that teach, and no others"
    seeds = [rollout.seed for group in one.groups for rollout in group.rollouts]
    assert len(set(seeds)) == 7 * 4


@pytest.mark.parametrize("shared", [False, True], ids=["own device", "shared device"])
def test_the_learner_works_while_further_problems_are_sampled_where_it_has_a_device(
    tmp_path: Path, shared: bool
) -> None:
    ids, told = order(), list[int]()

    async def work() -> None:
        opened = await open_virtual(tmp_path, {ids[0], ids[2]}, [REFILL], shared)
        learner = opened.services.learner.recorder  # type: ignore[attr-defined]
        opened.services.generator.at_work = lambda: told.append(len(learner.told))  # type: ignore[attr-defined]
        await Training(opened).step(0)
        await close_run(opened)

    run_virtual(work())
    assert told == [0, 0 if shared else 2]


def test_no_more_are_taken_than_allowed_and_the_update_is_made_in_any_case(tmp_path: Path) -> None:
    run = run_of(tmp_path, order(), REFILL)
    assert len(run.steps[0].groups) == 7
    assert run.submitted == [[0, 1, 2, 3], [4, 5, 6]]
    assert run.learner.told == ["apply"]


def test_without_refill_nothing_is_added_and_nothing_left_out(tmp_path: Path) -> None:
    ids = order()
    run = run_of(tmp_path, {ids[0], ids[2]})
    (step,), learner = run.steps, run.learner
    assert [group.problem_id for group in step.groups] == ids[:4]
    assert learner.told[0] == [0.0] * 4
    assert len(learner.told) == 5
    assert not {"refilled", "problems_taken"} & set(step.applied.metrics)


def test_mini_batches_are_of_groups_that_teach(tmp_path: Path) -> None:
    ids = order()
    twice = ("train.mini_batch_prompts=2", "loss.name=clipped_surrogate")
    for name, dull, told in (
        ("filled", {ids[0], ids[2]}, ["group", "group", "update", "group", "group", "apply"]),
        ("short", set(ids) - {ids[1], ids[3]}, ["group", "group", "apply"]),
    ):
        learner = run_of(tmp_path / name, dull, REFILL, *twice).learner
        assert [each if isinstance(each, str) else "group" for each in learner.told] == told


def test_an_objective_over_the_batch_sees_those_that_are_not_left_out(tmp_path: Path) -> None:
    """A whole step of no reward has nothing to compare with; one group with rewards gives all others an advantage."""
    ids = order()
    key = "objective.name=reinforce_plus_plus"
    run = run_of(tmp_path / "none", ids[:5], REFILL, key)
    (step,) = run.steps
    assert run.submitted == [[0, 1, 2, 3], [4, 5, 6]]
    assert [bool(each.any()) for each in step.advantages] == [False] * 4 + [True] * 3
    assert sum(each.sum() for each in step.advantages) == pytest.approx(0, abs=1e-9), "whitened over the three"
    assert len(run.learner.told) == 3 + 1
    run = run_of(tmp_path / "one", ids[:3], REFILL, key)
    assert run.submitted == [[0, 1, 2, 3]]
    assert all(each.any() for each in run.steps[0].advantages)
    assert len(run.learner.told) == 4 + 1


def test_a_run_that_is_stopped_anywhere_in_a_step_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    ids = order()
    dull = {ids[0], ids[2], ids[5], ids[8]}
    want, after = run_of(tmp_path / "undisturbed", dull, REFILL, count=2).steps
    first = {0: [0, 1, 2, 3], 3: [0, 1, 2, 3], 5: [4, 5], 9: [4, 5], 11: [6]}
    for stop in (0, 3, 5, 9, 11, 13, 14, 15):  # the step commits 7 groups, their verdicts, and the update
        folder = tmp_path / f"stopped-{stop}"
        run_virtual(stopped_after(open_virtual(folder, dull, [REFILL]), stop))
        run = run_of(folder, dull, REFILL, count=2)
        for got, wanted in zip(run.steps, (want, after), strict=True):
            assert facts(got.groups) == facts(wanted.groups), stop
            assert [each.tolist() for each in got.advantages] == [each.tolist() for each in wanted.advantages]
            for name in ("refilled", "problems_taken", "reward", "weight_digest"):
                assert got.applied.metrics[name] == wanted.applied.metrics[name]
        assert run.submitted[0] == first.get(stop, [0, 1, 2, 3]), "a round is submitted whole, or not at all"
        assert len(run.submitted) == {0: 4, 3: 4, 5: 3, 9: 3, 11: 2}.get(stop, 1) + (len(after.groups) > 4)


def test_a_replay_leaves_out_what_was_left_out_and_the_order_goes_on(tmp_path: Path) -> None:
    ids = order()
    dull = {ids[0], ids[2], ids[5]}
    run_of(tmp_path, dull, REFILL, count=2)
    again = run_of(tmp_path, dull, REFILL, count=2)  # which replays, and would refuse another digest
    assert again.opened.services.learner.version == 2
    assert again.opened.durability.memory.cursor == 11
    assert len(again.learner.told) == 2 * 5
    assert again.opened.services.skipped.groups == 7 + 4


def test_a_checkpoint_knows_where_the_order_goes_on(tmp_path: Path) -> None:
    ids = order()
    kept: dict[str, bytes] = {}

    async def work() -> None:
        opened = await open_virtual(tmp_path, {ids[1]}, [REFILL])
        await Training(opened).step(0)
        opened.durability.model_files = {"config.json": b"{}"}

        async def begin(step: int, copy: object, files: dict[str, bytes]) -> None:
            kept.update(files)

        opened.durability.checkpoint_writer.begin = begin  # type: ignore[assignment, method-assign]
        await opened.durability.checkpoint()
        await close_run(opened)

    run_virtual(work())
    assert json.loads(kept["order.json"]) == {"place": 5}


def test_more_problems_a_step_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train\.prompts_per_step=4 and train\.refill=29 are 33 problems a step, but"):
        run_of(tmp_path, (), "train.refill=29")


def test_a_stop_while_a_step_is_sealed_saves_weights_and_memory_of_that_step(tmp_path: Path) -> None:
    async def stopped() -> int:
        opened = await open_virtual(tmp_path, overrides=[REFILL])
        journal, sealed = opened.durability.journal, asyncio.Event()
        seal_step = journal.seal_step

        async def seal_slowly(*step: Any) -> None:
            """The rollout file is there, and the records that it replaces are being deleted."""
            await seal_step(*step)
            sealed.set()
            await asyncio.Event().wait()

        journal.seal_step = seal_slowly  # type: ignore[assignment, method-assign]
        training = asyncio.create_task(Training(opened).step(0))
        await sealed.wait()
        training.cancel()
        await asyncio.wait([training])
        await opened.durability.stop_early(60.0, lambda note: None)
        applied = journal.applied(0)
        await close_run(opened)
        assert applied is not None
        return int(applied.metrics["problems_taken"])

    async def found() -> tuple[int, int]:
        opened = await open_virtual(tmp_path, overrides=[REFILL])
        opened.restore()
        await close_run(opened)
        return opened.services.learner.base, opened.durability.memory.cursor

    cursor = run_virtual(stopped())
    assert run_virtual(found()) == (1, cursor), "the checkpoint's step, and where the order goes on"
    assert cursor >= 4
