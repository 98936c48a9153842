"""A run that updates several times a step."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import ray

from tests.workflows.test_train import config, train
from workflows.step.learner_session import LearnerSession, TrainingGroup

TWICE = ("train.mini_batch_prompts=2", "loss.name=clipped_surrogate", "train.steps=2")


@pytest.mark.slow
@pytest.mark.usefixtures("joined")
def test_losing_the_learner_between_the_updates_of_a_step_changes_nothing(
    warm_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = train(config(warm_model, tmp_path / "undisturbed", *TWICE))
    assert undisturbed != train(config(warm_model, tmp_path / "once", *TWICE[1:]))
    take, lost = LearnerSession._take, []

    async def lose_it_midway(learning: LearnerSession, piece: Sequence[TrainingGroup], taken: int) -> None:
        await take(learning, piece, taken)
        if learning.version == 1 and taken >= 2 and not lost:  # the first two made an update
            lost.append(ray.kill(ray.get_actor("learner")))

    monkeypatch.setattr(LearnerSession, "_take", lose_it_midway)
    assert train(config(warm_model, tmp_path / "hit", *TWICE)) == undisturbed
    assert lost
