"""Two learner ranks as actors with a GPU each, by Ray's count: placed, called and lost together."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import ray

from actors.calls import LOST, CallContext, P, Question, T
from actors.learner import LearnerActor, LearnerGroup, put
from actors.model_files import ModelFiles
from raypoly.core.settings import load
from raypoly.rollouts.engines.gloo_transfer import GlooReceiver
from tests.actors.conftest import ACTOR_OPTIONS
from tests.support.random_model import random_model
from tests.support.random_rows import NORMALISERS, random_rows

OPTIONS = {**ACTOR_OPTIONS, "num_gpus": 1.0, "namespace": "learners"}


@pytest.fixture
def learners(tmp_path: Path) -> LearnerGroup:
    folder = random_model(tmp_path / "model")
    config = load(None, ["train.ranks=2", f"model.path={folder}"], lambda text: None)
    return LearnerGroup(config, ModelFiles(folder), lambda rank: OPTIONS, CallContext(), 1.0)


def pid(rank: Any) -> int:
    return int(ray.get(rank.pulse.remote()).pid)


async def begin(learners: LearnerGroup, step: int) -> None:
    await learners.ask("learn", LearnerActor.begin, step, NORMALISERS)


async def each(learners: LearnerGroup, question: Question[P, T], *args: P.args, **kwargs: P.kwargs) -> Sequence[T]:
    """Every rank's answer."""
    return await learners.answers("update", put(learners.actors, question, *args, **kwargs))


def test_ranks_update_together_and_the_death_of_one_is_the_loss_of_all(learners: LearnerGroup) -> None:
    async def main() -> None:
        standing = await learners.start(None)
        assert (standing.version, standing.exact) == (0, True)
        assert standing.rows == "Qwen3ForCausalLM: rows packed, prompts shared"
        assert list(learners.actors) == ["learner-0", "learner-1"]
        shown = await learners.actors["learner-0"].__ray_call__.remote(repr)
        assert shown == "Learner(model) of actor-tests", "a run's actors are in its namespace"
        await begin(learners, 0)
        await learners.ask("learn", LearnerActor.accumulate, random_rows())
        stats = await learners.ask("learn", LearnerActor.apply)
        assert stats.rows == 8
        assert await each(learners, LearnerActor.version) == [1, 1]
        first, second = await each(learners, LearnerActor.offer, "objects", "generator")
        assert first.weights is not None
        assert "lm_head.weight" in first.weights
        assert second.weights == {}
        receiver = GlooReceiver()
        info, _ = await each(learners, LearnerActor.listen, "gloo", "generator")
        await asyncio.gather(
            each(learners, LearnerActor.connect, "generator"), asyncio.to_thread(receiver.connect, info)
        )
        parcel, _ = await each(learners, LearnerActor.offer, "gloo", "generator")
        sending = asyncio.ensure_future(each(learners, LearnerActor.send, "generator"))
        came = await asyncio.to_thread(lambda: dict(receiver.receive(parcel)))
        await sending
        assert {name: array.numpy().tolist() for name, array in came.items()} == {
            name: array.tolist() for name, array in first.weights.items()
        }
        hashed = await each(learners, LearnerActor.weight_hashes)
        assert [set(names) for names in hashed] == [set(first.weights), set()]
        await begin(learners, 1)
        victim = pid(learners.actors["learner-1"])
        os.kill(victim, signal.SIGSTOP)
        waiting = asyncio.ensure_future(learners.ask("learn", LearnerActor.accumulate, random_rows(1) * 40))
        await asyncio.sleep(0.5)
        assert not waiting.done(), "weights are whole only while all ranks take part"
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(LOST):
            await waiting

    try:
        asyncio.run(asyncio.wait_for(main(), 300))
    finally:
        learners.stop()
