"""Colocated and split runs, their transports swapped for a CPU's: whoever is lost, the weights end alike."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import RayTaskError

from actors.generator import deal_requests
from raypoly.engines import SampleRequest
from raypoly.policy.update_stats import UpdateStats
from tests.support.local_driver import LocalDriver
from tests.workflows.test_train import config, train
from workflows.startup.open_run import OpenRun
from workflows.step.learner_session import LearnerSession
from workflows.step.weight_sync import WeightSync

ROUTES = {
    "colocated": ("generator.placement=colocated", "generator.transport=shared_memory"),
    "split": ("generator.placement=split", "generator.transport=gloo"),
}


def test_groups_are_dealt_to_engines_in_slot_order_whatever_the_order_of_asking() -> None:
    requests = [SampleRequest(slot, np.zeros(1, np.int32), (slot,)) for slot in (4, 0, 3, 1, 2)]
    slots = [[request.slot for request in part] for part in deal_requests(requests, 2)]
    assert slots == [[0, 2, 4], [1, 3]]
    assert [len(part) for part in deal_requests(requests, 7)] == [1, 1, 1, 1, 1, 0, 0]


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("route", ["colocated", pytest.param("split", marks=pytest.mark.slow)])
def test_two_engines_of_which_any_is_lost_at_any_time_end_with_the_bits_of_one_undisturbed(
    route: str,
    reference: LocalDriver,
    warm_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reference has one engine: in float32 a response is the same in whatever batch it is sampled."""
    sync, update, seen = WeightSync.sync, LearnerSession.update, list[WeightSync]()
    slept: list[bool] = []

    async def lose_one_first(weights: WeightSync) -> None:
        seen[:] = [weights]
        if weights.services.learner.version == 2:
            ray.kill(ray.get_actor("generator"))
        await sync(weights)

    async def sleeping_first(learning: LearnerSession, step: int, groups: Sequence[Any], watch: Any) -> UpdateStats:
        if step == 1:
            slept.append(await sleeps(seen[0]))
        return await update(learning, step, groups, watch)

    async def kill(opened: OpenRun, step: int) -> None:
        if step == 0:  # while it samples: its replacement needs weights in the middle of a step
            while ("generate", "generator-e1") not in {
                (call.stage, call.who) for call in opened.services.context.in_flight.open
            }:
                await asyncio.sleep(0.001)
            ray.kill(ray.get_actor("generator-e1"))
        if step == 2:
            ray.kill(ray.get_actor("learner"))

    monkeypatch.setattr(WeightSync, "sync", lose_one_first)
    monkeypatch.setattr(LearnerSession, "update", sleeping_first)
    two = config(warm_model, tmp_path / "run", "generator.engines=2", "train.steps=3", *ROUTES[route])
    assert train(two, kill) == reference.digests()[:3]
    assert sorted(seen[0].services.generator.actors) == ["generator-2", "generator-e1-2"]
    assert slept == [route == "colocated"]


async def sleeps(weights: WeightSync) -> bool:
    """Whether the engines refuse to answer, for they sleep."""
    try:
        await weights.services.generator.probe(await weights.probe_tokens(), 1)
    except RayTaskError as error:
        return "the engine transformers sleeps and has no weights" in str(error)
    return False
