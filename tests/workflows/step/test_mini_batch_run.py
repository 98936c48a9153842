"""A run that updates several times a step."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
import ray

from tests.workflows.test_train import config, train
from workflows.startup.open_run import OpenRun
from workflows.step.learner_session import LearnerSession
from workflows.step.training_group import TrainingGroup

TWICE = ("train.mini_batch_prompts=2", "loss.name=clipped_surrogate", "train.steps=2")


@pytest.mark.slow
@pytest.mark.usefixtures("joined")
def test_an_engine_lost_between_the_updates_of_a_step_gets_the_weights_of_the_step_s_start(
    warm_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner, which is past them by then, goes back to them; the engine proves that it has them."""
    split = ("generator.placement=split", "generator.transport=gloo")
    undisturbed = train(config(warm_model, tmp_path / "undisturbed", *TWICE, *split))
    assert undisturbed != train(config(warm_model, tmp_path / "once", *TWICE[1:], *split))
    take, midway, replaced = LearnerSession._take, asyncio.Event(), asyncio.Event()

    async def wait_midway(learning: LearnerSession, piece: Sequence[TrainingGroup], taken: int) -> None:
        await take(learning, piece, taken)
        if learning.version == 1 and taken >= 2 and not midway.is_set():
            midway.set()
            await replaced.wait()

    async def lose_the_engine(opened: OpenRun, step: int) -> None:
        if step == 1:
            await midway.wait()
            ray.kill(ray.get_actor("generator"))
            await opened.services.generator.probe(await opened.weights.probe_tokens(), 1)
            assert opened.services.generator.proved
            started.append(opened.services.learner.started)
            replaced.set()

    started: list[int] = []
    monkeypatch.setattr(LearnerSession, "_take", wait_midway)
    assert train(config(warm_model, tmp_path / "hit", *TWICE, *split), lose_the_engine) == undisturbed
    assert started == [2]
