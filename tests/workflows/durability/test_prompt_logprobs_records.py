"""Log-probabilities across prompts are kept bit by bit from their commit to the bundle."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from raypoly.core.values import Group
from raypoly.run.store import Lease, Store
from raypoly.run.store.rollout_files import RolloutFiles
from raypoly.run.store.step_records import Applied, CompletedStep, Record, StageFinding, assemble
from tests.support.sample_groups import make_crossed, make_group, same_group, stages
from workflows.durability.history import History
from workflows.durability.journal import AlreadyCommitted, Journal


def records(group: Group) -> list[Record]:
    found: list[Record] = list(stages(group))
    if group.cross_logprobs is not None:
        found.append(StageFinding(group.step, group.slot, "prompt_logprobs", group.cross_logprobs))
    return found


def completed(step: int, groups: list[Group]) -> CompletedStep:
    numbers = tuple(np.arange(group.size, dtype=np.float64) for group in groups)
    return CompletedStep(step, tuple(groups), numbers, numbers, Applied(step, "ab", {"step": step}, len(groups)))


def test_they_come_back_from_the_journal_and_from_a_completed_step(store: Store, lease: Lease) -> None:
    groups = [make_crossed(make_group(3, 0, 4)), make_group(3, 1, 4), make_crossed(make_group(3, 2, 2, tokens=1), 2)]
    empty = replace(groups[2].rollouts[0], tokens=np.zeros(0, np.int32), logprobs=np.zeros(0, np.float32))
    groups[2] = make_crossed(replace(groups[2], rollouts=(empty, groups[2].rollouts[1])), 2)

    async def work() -> None:
        journal = Journal(store)
        await asyncio.gather(*(journal.commit(record) for group in groups for record in records(group)))
        found = Journal(store).step(3)
        assert all(same_group(found.groups[slot], group) for slot, group in enumerate(groups))
        assert {(0, "prompt_logprobs"), (2, "prompt_logprobs")} == {
            key for key in found.keys if key[1] == "prompt_logprobs"
        }
        with pytest.raises(AlreadyCommitted):
            await Journal(store).commit(records(groups[0])[-1])
        await journal.commit(Applied(3, "ab", {"step": 3}))
        await journal.seal_step(3, groups, *([np.zeros(group.size) for group in groups],) * 2)

    asyncio.run(work())
    assert all(map(same_group, Journal(store).load_step(3).groups, groups))


def test_without_the_rollouts_they_are_of_they_do_not_count() -> None:
    group = make_crossed(make_group(3, 0, 4))
    generated, scored, judged, crossed = records(group)
    assert same_group(assemble(3, [generated, crossed]).groups[0], group.with_findings(score=None, judge=None))
    assert assemble(3, [scored, judged, crossed]).groups == {}
    again = assemble(3, [crossed, generated, scored, judged]).groups[0]
    assert same_group(again, group.with_findings(prompt_logprobs=None))


@pytest.mark.parametrize("with_them", [(0,), (1,), (0, 1), ()])
def test_a_bundle_takes_steps_with_and_without_them(store: Store, lease: Lease, with_them: tuple[int, ...]) -> None:
    steps = [
        completed(step, [make_crossed(make_group(step, 0, 4)) if step in with_them else make_group(step, 0, 4)])
        for step in range(2)
    ]
    history = History(store, block=2)
    for step in steps:
        history.add(step)
    history.index_before(2)
    assert [key for key in store.list("rollouts/") if "steps-" in key], "they are bundled"
    files = RolloutFiles(store)
    for step in steps:
        assert same_group(files.step(step.step).groups[0], step.groups[0])
    assert ("own_prompt" in files.table(0).column_names) == bool(with_them)


def test_a_run_without_them_keeps_no_column_of_them(store: Store, lease: Lease) -> None:
    History(store).add(completed(0, [make_group(0, 0, 4)]))
    assert not {"own_prompt", "cross_logprobs"} & set(RolloutFiles(store).table(0).column_names)
