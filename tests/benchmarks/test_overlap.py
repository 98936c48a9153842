"""Scoring and judging hide behind generation and the learner; service times are given, no machine's speed matters."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.exposed_seconds import MOST_EXPOSED, ExposedSeconds, compare_ahead, measure_exposed
from tests.support.service_times import GENERATION, SYNC, UPDATE, Times
from tests.support.timed_training import measure_step
from tests.support.virtual_clock import VirtualLoop


def found(version: str, shared: bool) -> ExposedSeconds:
    return measure_exposed(version, shared, steps=3, workers=16, at_once=256)


@pytest.mark.parametrize("shared", [False, True], ids=["own device", "shared device"])
def test_scoring_and_judging_are_hidden_but_for_the_last_group(shared: bool) -> None:
    overlapped, barrier = found("overlapped", shared), found("barrier", shared)
    assert overlapped.share <= MOST_EXPOSED
    assert overlapped.tail >= overlapped.in_tail > 0
    assert overlapped.total < 0.75 * barrier.total
    for one in (overlapped, barrier):
        assert sum(one.exposed.values()) == pytest.approx(one.total, abs=1e-3)
        assert one.exposed["generate"] == pytest.approx(GENERATION, abs=1e-3)
        assert one.exposed["sync"] == pytest.approx(SYNC, abs=1e-3)
    assert barrier.exposed["learn"] == pytest.approx(UPDATE, abs=1e-3), "nothing hides the learner either"


def test_the_same_times_give_the_same_step() -> None:
    def row() -> object:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            found = runner.run(measure_step("overlapped", Times.drawn(3, 64), 16, False))
        return found["seconds"], found["exposed"], found["tail"]

    assert row() == row()


def test_a_step_ahead_hides_the_learner_behind_the_engine() -> None:
    without, ahead = compare_ahead(steps=4, workers=16, at_once=256)
    assert without >= 1.5 * ahead
    assert ahead >= GENERATION + SYNC
