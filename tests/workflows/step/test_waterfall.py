"""Every instant of a step is waited for in one stage; what hides behind generation or the learner is not exposed."""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from workflows.step.stopwatch import HIDEABLE, IDLE, PRIORITY, StageInterval, Stopwatch, waterfall


def test_each_instant_belongs_to_the_first_stage_that_is_at_work() -> None:
    found = waterfall(
        [
            StageInterval("generate", 0, 10),
            StageInterval("score", 4, 6, 0),
            StageInterval("judge", 6, 9, 0),
            StageInterval("score", 10, 11, 1),
            StageInterval("learn", 10.5, 12, None),
            StageInterval("judge", 11, 15, 1),
            StageInterval("learn", 15.5, 17, None),
            StageInterval("sync", 17, 18),
        ],
        0,
        20,
    )
    assert found.exposed == {"generate": 10, "learn": 3, "judge": 3, "score": 0.5, "sync": 1, IDLE: 2.5}
    assert found.seconds == {"generate": 10, "score": 3, "judge": 7, "learn": 3, "sync": 1, "total": 20}
    assert found.tail == {"seconds": 5, "exposed": 3.5}


def test_the_tail_is_the_last_group_s_and_ends_before_what_others_are_waited_for() -> None:
    judged = [StageInterval("judge", 8, 17, 0), StageInterval("judge", 9, 12, 1), StageInterval("judge", 10, 14, 2)]
    found = waterfall([StageInterval("generate", 0, 10), *judged, StageInterval("learn", 12, 13)], 0, 17)
    assert found.exposed["judge"] == 6
    assert found.tail == {"seconds": 4, "exposed": 3}


def test_a_last_group_that_was_labelled_while_others_were_generated_leaves_no_tail() -> None:
    found = waterfall([StageInterval("generate", 0, 10), StageInterval("score", 2, 3, 0)], 0, 11)
    assert found.tail == {"seconds": 0, "exposed": 0}


def test_a_step_that_the_journal_held_has_no_tail() -> None:
    found = waterfall([StageInterval("learn", 1, 3), StageInterval("sync", 3, 4)], 0, 4)
    assert found.tail == {"seconds": None, "exposed": None}
    assert found.exposed["learn"] == 2


def test_exposed_seconds_are_those_of_a_count_by_instants() -> None:
    rng = random.Random(7)
    intervals = []
    for _ in range(300):
        start = rng.randrange(0, 900)
        intervals.append(
            StageInterval(rng.choice(PRIORITY), start, start + rng.randrange(0, 12), rng.choice((None, *range(9))))
        )
    found = waterfall(intervals, 0, 1000)
    counted = dict.fromkeys((*PRIORITY, IDLE), 0)
    for instant in range(1000):
        at_work = {each.stage for each in intervals if each.start <= instant < each.end}
        counted[next((stage for stage in PRIORITY if stage in at_work), IDLE)] += 1
    assert found.exposed == counted
    assert math.fsum(found.exposed.values()) == found.seconds["total"] == 1000
    assert found.tail["exposed"] is not None
    assert found.tail["exposed"] <= sum(found.exposed[stage] for stage in HIDEABLE)


def test_the_stopwatch_counts_a_stage_once_however_many_groups_are_in_it() -> None:
    passed: list[tuple[str, int]] = []

    async def group(watch: Stopwatch, slot: int) -> None:
        with watch.stage("score", slot):
            await asyncio.sleep(0.02)
        watch.done("score")

    async def step() -> None:
        watch = Stopwatch(lambda stage, groups: passed.append((stage, groups)))
        await asyncio.gather(*(group(watch, slot) for slot in range(50)))
        found = watch.waterfall()
        assert 0 < found.seconds["score"] <= found.seconds["total"]
        assert sum(found.exposed.values()) == pytest.approx(found.seconds["total"])

    asyncio.run(step())
    assert passed == [("score", number) for number in range(1, 51)]
