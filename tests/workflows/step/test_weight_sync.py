"""Colocated and split runs, their transports swapped for a CPU's: whoever is lost, the weights end alike."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import RayTaskError

from actors.engine_actor import EngineClient
from actors.generator import deal_requests
from actors.learner import LearnerActor, LearnerGroup, put
from raypoly.core.values import Float32, Int32
from raypoly.learner.update_stats import UpdateStats
from raypoly.planning.placement import Placement
from raypoly.rollouts.engines import Sample, SampleRequest
from tests.support.local_driver import LocalDriver
from tests.support.service_times import Times
from tests.support.timed_run import close_run, open_timed_run, timed_config
from tests.support.timed_services import TimedGenerator
from tests.support.virtual_clock import run_virtual
from tests.workflows.test_train import config, train
from workflows.startup.open_run import OpenRun
from workflows.step.learner_session import LearnerSession
from workflows.step.weight_sync import WeightSync
from workflows.train import Training

ROUTES: dict[str, tuple[str, ...]] = {
    "colocated": ("generator.placement=colocated", "generator.transport=objects"),
    "split": ("generator.placement=split", "generator.transport=gloo"),
}
ROUTES["offloaded"] = (*ROUTES["colocated"], "train.offload=all")
COMPUTING = {"begin", "accumulate", "update", "apply", "logprobs", "cross_logprobs", "reference_logprobs"}
"""Calls for which a learner's weights come back to the device."""


class Order:
    """What the driver asks of learner and engines, in its order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        ask, offer, tell = LearnerGroup.ask, put, EngineClient.ask_once

        async def asking(group: LearnerGroup, stage: str, question: Any, *args: Any, **kwargs: Any) -> Any:
            self.calls.append(question.__name__)
            return await ask(group, stage, question, *args, **kwargs)

        def offering(actors: Any, question: Any, *args: Any) -> Any:
            self.calls.append(question.__name__)
            return offer(actors, question, *args)

        async def telling(engine: EngineClient, stage: str, question: Any, *args: Any, **kwargs: Any) -> Any:
            self.calls.append(question.__name__)
            return await tell(engine, stage, question, *args, **kwargs)

        patch.setattr(LearnerGroup, "ask", asking)
        patch.setattr("workflows.step.learner_session.put", offering)
        patch.setattr(EngineClient, "ask_once", telling)

    def check(self) -> None:
        """Nothing is computed while an engine is awake, which wakes after the learner's weights have left."""
        awake, home = False, True
        for at, call in enumerate(self.calls):
            said = f"{call} after {self.calls[max(0, at - 8) : at]}"
            assert not (call in COMPUTING and awake), said
            assert not (call == "receive" and home), said
            awake = call == "receive" or (awake and call != "sleep")
            home = call in COMPUTING or call == "setup" or (home and call not in ("release", "offer"))


def test_groups_are_dealt_to_engines_in_slot_order_whatever_the_order_of_asking() -> None:
    requests = [SampleRequest(slot, np.zeros(1, np.int32), (slot,)) for slot in (4, 0, 3, 1, 2)]
    slots = [[request.slot for request in part] for part in deal_requests(requests, 2)]
    assert slots == [[0, 2, 4], [1, 3]]
    assert [len(part) for part in deal_requests(requests, 7)] == [1, 1, 1, 1, 1, 0, 0]


class Chosen(TimedGenerator):
    """One engine that proves its weights or not, and the error of whose first log-probability is the test's."""

    def __init__(self) -> None:
        super().__init__(Times.drawn(1, 4), False)
        self.error = 0.0

    async def probe(self, tokens: Int32, seed: int) -> dict[str, tuple[Sample, Float32]]:
        ((sample, fixed),) = (await super().probe(tokens, seed)).values()
        fixed[0] += self.error
        return {"generator-7": (sample, fixed)}


def chosen(folder: Path, work: Callable[[WeightSync, Chosen], Awaitable[None]], *overrides: str) -> list[str]:
    """The notes that a weight sync makes, whose learner has no weights."""
    notes: list[str] = []

    async def main() -> None:
        generator = Chosen()
        own = timed_config(4, 2, 1, "generator.engine=transformers", *overrides)
        opened = await open_timed_run(folder, Times.drawn(1, 4), config=own, generator=generator)
        try:
            await work(WeightSync(own, opened.services, opened.problems.splits["train"], notes.append), generator)
        finally:
            await close_run(opened)

    run_virtual(main())
    return notes


@pytest.mark.parametrize(("dtype", "small"), [("bfloat16", 0.5), ("float32", 0.2)])
def test_a_log_probability_that_is_far_off_gives_a_note_when_the_mean_rises_and_nothing_more(
    tmp_path: Path, dtype: str, small: float
) -> None:
    """In float32 an H200's attention, which multiplies in TF32, was off by a mean of 0.0016: 0.2 over 120 tokens."""

    async def sync(weights: WeightSync, generator: Chosen) -> None:
        for generator.error in (small, 50.0, 60.0, small, math.nan):
            await weights.sync()
            seen.append(weights.difference)

    seen: list[dict[str, float]] = []
    notes = chosen(tmp_path, sync, f"model.dtype={dtype}")
    assert len(notes) == 2, "one for each rise"
    assert "engine transformers (generator-7) and the learner differ by" in notes[0]
    tokens = 50 / seen[1]["probe_mean"]
    assert seen[0]["probe_mean"] == pytest.approx(small / tokens)
    assert 100 < tokens < 140
    assert seen[0].keys() == {"probe_mean", "probe_q99"}
    assert all(map(math.isnan, seen[4].values())), "null in the step's row"


def test_an_engine_that_cannot_hash_is_told_of_once(tmp_path: Path) -> None:
    async def sync(weights: WeightSync, generator: Chosen) -> None:
        generator.proved = False
        await weights.sync()
        await weights.sync()

    (note,) = chosen(tmp_path, sync)
    assert note.startswith("The engine transformers has no weight_hashes(): nothing proves")


TIMES = Times.drawn(1, 4, groups=3, rollouts=8)


class Sleeper(TimedGenerator):
    """Its engine shares the learner's device."""

    placement = Placement("colocated", "objects")

    def __init__(self, calls: list[str]) -> None:
        super().__init__(TIMES, True)
        self.calls = calls

    async def rest(self) -> None:
        await super().rest()
        self.calls.append("sleep")

    async def update_weights(self, deliver: Any) -> None:
        self._over.clear()
        self.calls.append("receive")


@pytest.mark.parametrize("offload", ["none", "optimizer", "all"])
def test_a_step_and_its_sync_swap_engine_and_learner_in_one_order(
    tmp_path: Path, offload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, learner = Order(monkeypatch), "tests.support.timed_services._TimedLearner"
    monkeypatch.setattr(f"{learner}.release", lambda self: asyncio.sleep(0), raising=False)

    async def main() -> None:
        own = timed_config(3, 8, 1, f"train.offload={offload}", "generator.placement=colocated")
        opened = await open_timed_run(tmp_path, TIMES, config=own, generator=Sleeper(order.calls))
        try:
            await opened.weights.sync()
            await Training(opened).step(0)
        finally:
            await close_run(opened)

    run_virtual(main())
    learned = ["sleep", "begin", *(call for call in order.calls if call == "accumulate"), "apply"]
    handed = ["logprobs", "release", "receive"] if offload == "all" else ["release", "receive", "logprobs", "logprobs"]
    assert order.calls == [*handed, *learned, *handed]
    if offload == "all":
        order.check()


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize(
    "route", ["offloaded", *(pytest.param(r, marks=pytest.mark.slow) for r in ("colocated", "split"))]
)
def test_losing_each_of_two_engines_and_every_other_actor_ends_with_the_bits_of_one_undisturbed_engine(
    route: str,
    reference: LocalDriver,
    warm_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the middle of a step, between two, and while the learner's weights leave. In float32 a response is the same
    in whatever batch it is sampled."""
    sync, update, ask, seen = WeightSync.sync, LearnerSession.update, LearnerSession.ask, list[WeightSync]()
    slept: list[bool] = []
    order, leaving = Order(monkeypatch), list[asyncio.Task[None]]()

    async def lose_leaving(learning: LearnerSession, stage: str, question: Any, *args: Any) -> Any:
        if question is LearnerActor.release and learning.version == 1 and not leaving:
            leaving.append(asyncio.create_task(lose(learning)))
        return await ask(learning, stage, question, *args)

    async def lose(learning: LearnerSession) -> None:
        await asyncio.sleep(0.002)
        for actor in learning.actors.values():
            ray.kill(actor)

    async def lose_one_first(weights: WeightSync, sampling: bool = False) -> None:
        seen[:] = [weights]
        if weights.services.learner.version == 2:
            ray.kill(ray.get_actor("generator"))
        await sync(weights, sampling)

    async def sleeping_first(learning: LearnerSession, step: int, *others: Any) -> UpdateStats:
        if step == 1:
            slept.append(await sleeps(seen[0]))
        return await update(learning, step, *others)

    async def kill(opened: OpenRun, step: int) -> None:
        if step == 0:  # while it samples: its replacement needs weights in the middle of a step
            while ("generate", "generator-e1") not in {
                (call.stage, call.who) for call in opened.services.context.in_flight.open
            }:
                await asyncio.sleep(0.001)
            ray.kill(ray.get_actor("generator-e1"))
        if step == 1:
            await asyncio.sleep(0.05)
            for name in ("scorer-0", "judge"):
                ray.kill(ray.get_actor(name))
        if step == 2:
            await lose(opened.services.learner)

    monkeypatch.setattr(LearnerSession, "ask", lose_leaving)
    monkeypatch.setattr(WeightSync, "sync", lose_one_first)
    monkeypatch.setattr(LearnerSession, "update", sleeping_first)
    two = config(warm_model, tmp_path / "run", "generator.engines=2", "train.steps=3", *ROUTES[route])
    assert train(two, kill) == reference.digests()[:3]
    assert sorted(seen[0].services.generator.actors) == ["generator-2", "generator-e1-2"]
    assert slept == [route != "split"]
    assert leaving or route == "split"
    if route == "offloaded":
        order.check()
        assert {"receive", "sleep", "release", "begin", "apply", "snapshot"} <= {*order.calls}


async def sleeps(weights: WeightSync) -> bool:
    """Whether the engines refuse to answer, for they sleep."""
    try:
        await weights.services.generator.probe(await weights.probe_tokens(), 1)
    except RayTaskError as error:
        return "the engine transformers sleeps and has no weights" in str(error)
    return False
