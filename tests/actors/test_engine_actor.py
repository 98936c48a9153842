"""An engine's actor: what is asked of it while it samples."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from actors.engine_actor import GeneratorActor
from actors.model_files import ModelFiles
from raypoly.core.config import GeneratorConfig
from raypoly.core.errors import TransferBroken, WeightsMismatch
from raypoly.rollouts.engines import More, Sample, SampleRequest
from raypoly.rollouts.engines.transfer import Parcel
from tests.support.random_model import random_model

TOKENS = np.array([5], np.int32)
REQUESTS = [SampleRequest(slot, TOKENS, (slot,)) for slot in range(3)]


class Stepping:
    """An engine that makes a step when the test lets it, and a response in each."""

    made: ClassVar[list[Any]] = []
    may_load = threading.Event()

    def __init__(self, *_: Any) -> None:
        self.steps = threading.Semaphore(0)
        self.told: list[Any] = []
        self.made.append(self)
        assert self.may_load.wait(60)

    def sample(self, requests: Sequence[SampleRequest], more: More | None = None) -> Iterator[tuple[int, list[Sample]]]:
        left: Sequence[SampleRequest] | None = requests
        while left is not None:
            for request in left:
                assert self.steps.acquire(timeout=60)
                if more is not None:
                    assert not more(False)
                self.told.append(request.slot)
                yield request.slot, [Sample(TOKENS, np.zeros(1, np.float32), "stop")]
            left = more(True) if more is not None else None

    def update_weights(self, weights: Any) -> None:
        if weights == "broken":
            raise FloatingPointError("broken")
        self.told.append((weights, threading.current_thread().name))


class Telling(Stepping):
    takes_more = True

    def set_weight_version(self, version: int) -> None:
        """Its samples leave it to the actor."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def engines_load() -> None:
    Stepping.may_load.set()


def actor_of(folder: Path, engine: str = "Telling") -> tuple[GeneratorActor, Any]:
    name = f"tests.actors.test_engine_actor:{engine}"
    actor = GeneratorActor(ModelFiles(folder), GeneratorConfig(engine=name), "float32")
    actor.setup()
    return actor, Stepping.made.pop()


def parcel(weights: Any, version: int = 1) -> Parcel:
    return Parcel(version=version, weights=weights)


def beside(work: Callable[[], Any], name: str = "beside") -> threading.Thread:
    thread = threading.Thread(target=work, name=name)
    thread.start()
    return thread


def receiving(actor: GeneratorActor) -> threading.Thread:
    """Another thread that hands over new weights. It waits for its turn when this returns, if it has to."""
    thread = beside(lambda: actor.receive(parcel("new"), 1), "receiving")
    thread.join(0.3)
    return thread


@pytest.mark.parametrize("fed", [False, True])
def test_new_weights_go_in_between_two_steps_of_a_submission_by_its_own_thread(folder: Path, fed: bool) -> None:
    (actor, engine), found = actor_of(folder), list[Any]()
    number = 1 if fed else None
    sampling = beside(lambda: found.extend(actor.sample(REQUESTS, number)), "sampling")
    engine.steps.release()
    while not engine.told:
        time.sleep(0.01)
    new = receiving(actor)
    assert new.is_alive(), "no step has begun"
    engine.steps.release(2)
    new.join(60)
    if fed:
        actor.feed(1, None)
    sampling.join(60)
    assert engine.told == [0, ("new", "sampling"), 1, 2]
    assert [rollouts[0].weight_version for _, rollouts in found] == [0, 1, 1]


def test_weights_that_come_while_a_submission_waits_for_requests_do_not_wait_for_them(folder: Path) -> None:
    (actor, engine), found = actor_of(folder), list[Any]()
    engine.steps.release(4)
    sampling = beside(lambda: found.extend(actor.sample(REQUESTS, 1)), "sampling")
    while len(found) < 3:
        time.sleep(0.01)
    actor.receive(parcel("new"), 1)
    actor.feed(1, SampleRequest(0, TOKENS, (9,)))
    actor.feed(1, None)
    sampling.join(60)
    assert engine.told == [0, 1, 2, ("new", "sampling"), 0]


def test_an_engine_that_knows_no_versions_has_them_when_its_submission_is_done(folder: Path) -> None:
    actor, engine = actor_of(folder, "Stepping")
    engine.steps.release(3)
    sampled = actor.sample(REQUESTS)
    next(sampled)
    new = receiving(actor)
    list(sampled)
    new.join(60)
    assert [each if isinstance(each, int) else each[0] for each in engine.told] == [0, 1, 2, "new"]


def test_weights_wait_for_an_actor_that_is_being_made_ready(folder: Path) -> None:
    Stepping.may_load.clear()
    actor = GeneratorActor(
        ModelFiles(folder), GeneratorConfig(engine="tests.actors.test_engine_actor:Telling"), "float32"
    )
    setup = beside(actor.setup)
    new = receiving(actor)
    assert new.is_alive()
    Stepping.may_load.set()
    setup.join(60)
    new.join(60)
    assert Stepping.made.pop().told == [("new", "receiving")]


def test_nothing_that_was_sampled_with_half_of_the_new_weights_comes_out(folder: Path) -> None:
    (actor, engine), told = actor_of(folder), list[str]()
    engine.steps.release()
    sampled = actor.sample(REQUESTS)
    next(sampled)

    def receive() -> None:
        with pytest.raises(FloatingPointError):
            actor.receive(parcel("broken"), 1)
        told.append("broken")

    broken = beside(receive)
    broken.join(0.3)
    engine.steps.release(2)
    with pytest.raises(TransferBroken):
        next(sampled)
    broken.join(60)
    assert told == ["broken"]


def test_an_error_of_loading_is_the_callers(folder: Path) -> None:
    actor, engine = actor_of(folder)
    with pytest.raises(FloatingPointError, match="broken"):
        actor.receive(parcel("broken"), 1)
    with pytest.raises(WeightsMismatch):
        actor.receive(parcel("new"), 2)
    actor.receive(parcel("new"), 1)
    assert len(engine.told) == 1
