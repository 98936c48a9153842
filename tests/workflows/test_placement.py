"""Colocated and split runs, their transports swapped for a CPU's: whoever is lost, the weights end alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray
from ray.exceptions import RayTaskError

from actors.generator import dealt
from benchmarks.chaos.machines import Machines
from raypoly.engines import SampleRequest
from raypoly.rundir import resolve
from tests.workflows.test_train import config, train
from workflows.parts import Parts
from workflows.starting import started
from workflows.stopping import run_workflow

TWO = ("generator.engines=2", "train.steps=3")
ROUTES = {
    "colocated": ("generator.placement=colocated", "generator.transport=shared_memory"),
    "split": ("generator.placement=split", "generator.transport=gloo"),
}


@pytest.fixture(autouse=True)
def _shared_ray(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", machines.address)


@pytest.fixture(scope="module")
def undisturbed(machines: Machines, warm_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The digests of two engines that are given weights as Ray's objects."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", machines.address)
        yield train(config(warm_model, tmp_path_factory.mktemp("two") / "run", *TWO))


def test_groups_are_dealt_to_engines_in_slot_order_whatever_the_order_of_asking() -> None:
    requests = [SampleRequest(slot, np.zeros(1, np.int32), (slot,)) for slot in (4, 0, 3, 1, 2)]
    slots = [[request.slot for request in part] for part in dealt(requests, 2)]
    assert slots == [[0, 2, 4], [1, 3]]
    assert [len(part) for part in dealt(requests, 7)] == [1, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("route", ROUTES)
def test_two_engines_of_which_any_is_lost_at_any_time_end_with_the_undisturbed_bits(
    route: str, undisturbed: list[str], warm_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, names = Parts.publish_weights, []

    async def lose_one_first(parts: Parts) -> None:
        if parts.learning.version == 2:
            ray.kill(ray.get_actor("generator"))
        await publish(parts)
        names.append(sorted(parts.generator.actors))

    async def kill(parts: Parts, step: int) -> None:
        if (
            step == 0
        ):  # in the middle of its sampling, so its replacement needs weights while the learner may be at work
            while ("generate", "generator-e1") not in {(call.stage, call.who) for call in parts.care.calls.open}:
                await asyncio.sleep(0.001)
            ray.kill(ray.get_actor("generator-e1"))
        if step == 2:
            ray.kill(ray.get_actor("learner"))

    monkeypatch.setattr(Parts, "publish_weights", lose_one_first)
    assert train(config(warm_model, tmp_path / "run", *TWO, *ROUTES[route]), kill) == undisturbed
    assert names[0] == ["generator", "generator-e1"]
    assert names[-1] == ["generator-2", "generator-e1-2"]


def test_a_colocated_learner_waits_until_the_engines_sleep(warm_model: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with started(resolve(config(warm_model, tmp_path / "run", *ROUTES["colocated"]))) as parts:
            await parts.publish_weights()
            waiting = asyncio.create_task(parts.generator.idle())
            await asyncio.sleep(0)
            assert not waiting.done()
            await parts.generator.rest()
            await waiting
            with pytest.raises(RayTaskError, match="the engine transformers sleeps and has no weights"):
                await parts.generator.probe(parts.probe_tokens, 1)
            await parts.publish_weights()  # awake again, and verified

    run_workflow(work())
