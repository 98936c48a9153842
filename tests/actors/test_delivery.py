"""A collective ends on both sides, however one of them fails; and every engine proves the weights that it got."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from actors.engine_actor import GeneratorActor
from actors.learner import LearnerActor
from raypoly.core.errors import TransferBroken, WeightsMismatch
from raypoly.core.settings import load
from raypoly.planning.placement import Placement
from workflows.step.weight_sync import WeightDelivery, WeightSync, both


class Side:
    """One that waits for its partner until it is ended, as a collective does."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def work(self) -> None:
        await self.ended.wait()
        raise TransferBroken("ended")

    def end(self) -> None:
        self.ended.set()


async def fails(error: Exception) -> None:
    raise error


async def test_the_side_that_is_left_waiting_is_ended_and_the_other_one_s_error_is_told() -> None:
    left, right = Side(), Side()
    with pytest.raises(WeightsMismatch, match="version 3"):
        await both(left.work(), left.end, fails(WeightsMismatch("version 3")), right.end, grace=0.01)
    assert left.ended.is_set()
    assert not right.ended.is_set()


async def test_a_side_that_notices_by_itself_is_left_alone() -> None:
    left, right = Side(), Side()
    with pytest.raises(WeightsMismatch):
        await both(fails(TransferBroken("reset")), left.end, fails(WeightsMismatch("version 3")), right.end)
    assert not left.ended.is_set()
    assert not right.ended.is_set()


async def test_both_sides_are_waited_for() -> None:
    done: list[str] = []

    async def late(name: str) -> None:
        await asyncio.sleep(0)
        done.append(name)

    side = Side()
    await both(late("learner"), side.end, late("engine"), side.end)
    assert sorted(done) == ["engine", "learner"]


class Source:
    """A learner whose hashes are the test's."""

    def __init__(self, *hashes: dict[str, str]) -> None:
        self.started, self.offered, self.asked = 1, 0, 0
        self._hashes, self.borrowed = iter(hashes), False
        self.told: list[str] = []

    @contextmanager
    def lent(self) -> Iterator[None]:
        self.borrowed = True
        yield
        self.borrowed = False

    async def offer(self, transport: str, peer: str) -> str:
        assert self.borrowed
        self.offered += 1
        return "parcel"

    async def ask(self, stage: str, question: Any, *args: Any) -> Any:
        self.told.append(question.__name__)
        if question is not LearnerActor.weight_hashes:
            return {}
        self.asked += 1
        return next(self._hashes)

    async def ask_once(self, stage: str, question: Any, *args: Any) -> None:
        self.told.append(question.__name__)

    def stop(self) -> None:
        raise AssertionError("no side is lost")


class HashingEngine:
    """An engine that answers at once, with these hashes."""

    def stop(self) -> None:
        raise AssertionError("no side is lost")

    def __init__(self, hashes: dict[str, str] | None, name: str = "generator-7") -> None:
        self.who, self.name, self.kind, self.proved = "generator", name, "vllm", False
        self.received, self.version, self._hashes, self.started = 0, -1, hashes, 1
        self.asked: list[str] = []

    async def ask_between(self, stage: str, question: Any, *args: Any) -> dict[str, str] | None:
        await asyncio.sleep(0)
        if question is GeneratorActor.receive:
            self.received, self.version = self.received + 1, args[1]
        self.asked.append(question.__name__)
        return self._hashes


def deliver(source: Source, *engines: HashingEngine, transport: str = "objects") -> None:
    async def main() -> None:
        delivery = WeightDelivery(source, 3, transport, {}, asyncio.Lock())  # type: ignore[arg-type]
        for engine in engines:
            await delivery.to(engine)  # type: ignore[arg-type]

    asyncio.run(main())


def test_other_weights_stop_the_run_with_engine_version_and_three_names() -> None:
    said = r"version 3 the engine vllm \(generator-7\) has other weights .*: a, b \(missing\), c \(unkn.* and 2 more"
    engine = HashingEngine({"a": "0", "c": "1", "d": "1", "e": "1"})
    with pytest.raises(WeightsMismatch, match=said):
        deliver(Source({"a": "1", "b": "1"}), engine)
    assert not engine.proved


def test_every_engine_and_replacement_proves_its_weights_by_hashes_that_the_learner_computes_once() -> None:
    source, engines = Source({"a": "1"}), [HashingEngine({"a": "1"}, name) for name in ("generator", "generator-2")]
    deliver(source, *engines)
    assert [engine.proved for engine in engines] == [True, True]
    assert (source.offered, source.asked) == (1, 1)
    with pytest.raises(WeightsMismatch):
        deliver(Source({"a": "1"}), HashingEngine({"a": "1"}), HashingEngine({"a": "2"}))


def test_an_engine_that_cannot_hash_is_unproved() -> None:
    engine = HashingEngine(None)
    deliver(Source({"a": "1"}), engine)
    assert not engine.proved


def test_hashes_of_a_learner_that_replaced_the_sender_are_no_proof_against_the_engine() -> None:
    """A replay on a GPU may give other weights, which are sent then."""

    class Replaced(Source):
        async def ask(self, stage: str, question: Any, *args: Any) -> Any:
            found = await super().ask(stage, question, *args)
            self.started = 2
            return found

    source, engine = Replaced({"a": "drifted"}, {"a": "1"}), HashingEngine({"a": "1"})
    deliver(source, engine)
    assert engine.proved
    assert (source.offered, source.asked, engine.received) == (2, 2, 2)


async def test_a_replacement_gets_what_the_learner_has_by_then_and_waits_for_an_update_that_is_being_applied() -> None:
    """In flight the learner may be an update beyond the last sync."""
    source, first, other = Source({"a": "1"}, {"a": "1"}), HashingEngine({"a": "1"}), HashingEngine({"a": "1"})
    applying = asyncio.Lock()

    async def settled() -> None:
        async with applying:
            pass

    learner: Any = source
    learner.version, learner.settled = 3, settled

    class Engines:
        samples = proved = True
        placement = Placement("cpu", "objects", False)

        async def update_weights(self, deliver: Any) -> None:
            self.deliver = deliver
            await deliver(first)

    services: Any = SimpleNamespace(generator=Engines(), learner=learner)
    await WeightSync(load(None, [], print), services, [], print).sync(sampling=True)
    assert first.version == 3
    async with applying:
        late = asyncio.create_task(services.generator.deliver(other))
        await asyncio.sleep(0.01)
        assert other.version == -1
        learner.version = 4
    await late
    assert other.version == 4


@pytest.mark.parametrize("transport", ["ipc", "nccl"])
def test_sides_connect_once_and_the_sender_works_along_only_in_a_collective(transport: str) -> None:
    source, engine = Source({"a": "1"}), HashingEngine({"a": "1"})
    deliver(source, engine, engine, transport=transport)
    assert engine.asked == ["connect", *["receive", "weight_hashes"] * 2]
    once = [*(["send"] if transport == "nccl" else []), "withdraw"]
    assert [name for name in source.told if name != "weight_hashes"] == ["listen", "connect", *once, *once]
