"""What a step takes in place of groups that teach nothing, and that a stop anywhere in it changes nothing."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

import pytest

from raypoly.core.errors import UsageError
from raypoly.data.problem_order import EpochOrder
from raypoly.run.store.step_records import CompletedStep
from tests.support.timed_run import close_run, timed_problems
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import Recorder, open_virtual, stopped_after
from workflows.startup.open_run import OpenRun
from workflows.train import Training

T = TypeVar("T")
REFILL = "train.refill=3"


def order() -> list[str]:
    """The problems' ids in the order in which steps take them."""
    found = EpochOrder(timed_problems(32), 4, 0)
    return [found.at(place)[1].id for place in range(64)]


def taken(
    folder: Path, dull: Collection[str], *overrides: str, count: int = 1
) -> tuple[list[CompletedStep], Recorder, list[list[int]]]:
    """So many steps as the journal has them, what the learner was told, and the slots of each submission."""

    async def work() -> tuple[list[CompletedStep], Recorder, list[list[int]]]:
        opened = await open_virtual(folder, dull, overrides)
        for step in range(count):
            await Training(opened).step(step)
        found = [opened.durability.journal.load_step(step) for step in range(count)]
        await close_run(opened)
        return found, opened.services.learner.recorder, opened.services.generator.submitted  # type: ignore[attr-defined]

    return run_virtual(work())


def test_further_problems_of_the_order_take_the_place_of_those_that_teach_nothing(tmp_path: Path) -> None:
    ids = order()
    (one, two), learner, submitted = taken(tmp_path, {ids[0], ids[2], ids[5]}, REFILL, count=2)
    assert [group.problem_id for group in one.groups] == ids[:7]
    assert submitted[:3] == [[0, 1, 2, 3], [4, 5], [6]], "each round is one submission, in slot order"
    assert [group.problem_id for group in two.groups] == ids[7:11], "the next step begins behind them"
    assert [step.applied.metrics["refilled"] for step in (one, two)] == [3, 0]
    assert [step.applied.metrics["problems_taken"] for step in (one, two)] == [7, 11]
    assert [slot for slot, each in enumerate(one.advantages) if not each.any()] == [0, 2, 5]
    assert one.applied.metrics["zero_advantage"] == pytest.approx(3 / 7)
    assert learner.told[:5] == [[0.5, -0.5, 0.5, -0.5]] * 4 + ["apply"], "those that teach, and no others"
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
    (step,), learner, submitted = taken(tmp_path, order(), REFILL)
    assert len(step.groups) == 7
    assert submitted == [[0, 1, 2, 3], [4, 5, 6]]
    assert learner.told == ["apply"]


def test_without_refill_nothing_is_added_and_nothing_left_out(tmp_path: Path) -> None:
    ids = order()
    (step,), learner, _ = taken(tmp_path, {ids[0], ids[2]})
    assert [group.problem_id for group in step.groups] == ids[:4]
    assert learner.told[0] == [0.0] * 4
    assert len(learner.told) == 5
    assert not {"refilled", "problems_taken"} & set(step.applied.metrics)


def test_mini_batches_are_of_groups_that_teach(tmp_path: Path) -> None:
    ids = order()
    twice = ("train.mini_batch_prompts=2", "loss.name=clipped_surrogate")
    _, learner, _ = taken(tmp_path / "filled", {ids[0], ids[2]}, REFILL, *twice)
    assert [told if isinstance(told, str) else "group" for told in learner.told] == [
        *["group"] * 2,
        "update",
        *["group"] * 2,
        "apply",
    ]
    _, learner, _ = taken(tmp_path / "short", set(ids) - {ids[1], ids[3]}, REFILL, *twice)
    assert [told if isinstance(told, str) else "group" for told in learner.told] == ["group", "group", "apply"]


def test_an_objective_over_the_batch_sees_those_that_are_not_left_out(tmp_path: Path) -> None:
    """A whole step of no reward has nothing to compare with; one group with rewards gives all others an advantage."""
    ids = order()
    key = "objective.name=reinforce_plus_plus"
    (step,), learner, submitted = taken(tmp_path / "none", ids[:5], REFILL, key)
    assert submitted == [[0, 1, 2, 3], [4, 5, 6]]
    assert [bool(each.any()) for each in step.advantages] == [False] * 4 + [True] * 3
    assert sum(each.sum() for each in step.advantages) == pytest.approx(0, abs=1e-9), "whitened over the three"
    assert len(learner.told) == 3 + 1
    (step,), learner, submitted = taken(tmp_path / "one", ids[:3], REFILL, key)
    assert submitted == [[0, 1, 2, 3]]
    assert all(each.any() for each in step.advantages)
    assert len(learner.told) == 4 + 1


def test_a_run_that_is_stopped_anywhere_in_a_step_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    ids = order()
    dull = {ids[0], ids[2], ids[5], ids[8]}
    (want, after), _, _ = taken(tmp_path / "undisturbed", dull, REFILL, count=2)
    first = {0: [0, 1, 2, 3], 3: [0, 1, 2, 3], 5: [4, 5], 9: [4, 5], 11: [6]}
    for stop in (0, 3, 5, 9, 11, 13, 14, 15):  # the step commits 7 groups, their verdicts, and the update
        folder = tmp_path / f"stopped-{stop}"
        run_virtual(stopped_after(open_virtual(folder, dull, [REFILL]), stop))
        found, submitted = run_virtual(resumed(folder, dull))
        for got, wanted in zip(found, (want, after), strict=True):
            assert facts(got) == facts(wanted), stop
        assert submitted[0] == first.get(stop, [0, 1, 2, 3]), "a round is submitted whole, or not at all"
        assert len(submitted) == {0: 4, 3: 4, 5: 3, 9: 3, 11: 2}.get(stop, 1) + (len(after.groups) > 4)


async def resumed(folder: Path, dull: Collection[str]) -> tuple[list[CompletedStep], list[list[int]]]:
    opened = await open_virtual(folder, dull, [REFILL])
    opened.restore()
    for step in range(opened.services.learner.version, 2):
        await Training(opened).step(step)
    found = [opened.durability.journal.load_step(step) for step in range(2)]
    await close_run(opened)
    return found, opened.services.generator.submitted  # type: ignore[attr-defined]


def facts(step: CompletedStep) -> Any:
    """All that a resumed run must have like an undisturbed one."""
    metrics = {name: step.applied.metrics[name] for name in ("refilled", "problems_taken", "reward", "weight_digest")}
    groups = [(g.slot, g.problem_id, [r.tokens.tolist() for r in g.rollouts]) for g in step.groups]
    return metrics, groups, [each.tolist() for each in step.advantages]


def test_a_replay_leaves_out_what_was_left_out_and_the_order_goes_on(tmp_path: Path) -> None:
    ids = order()
    dull = {ids[0], ids[2], ids[5]}
    taken(tmp_path, dull, REFILL, count=2)

    async def again() -> OpenRun:
        opened = await open_virtual(tmp_path, dull, [REFILL])  # which replays, and would refuse another digest
        opened.restore()
        await close_run(opened)
        return opened

    opened = run_virtual(again())
    assert opened.services.learner.version == 2
    assert opened.durability.memory.cursor == 11
    assert len(opened.services.learner.recorder.told) == 2 * 5  # type: ignore[attr-defined]
    assert opened.services.skipped.groups == 7 + 4


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
        taken(tmp_path, (), "train.refill=29")
