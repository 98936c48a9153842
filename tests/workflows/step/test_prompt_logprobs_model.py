"""Skills with a model that is really sampled and trained, in this process: steps, a stop within one, and a replay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from raypoly.algorithms.losses import of_run
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core.config import Config
from raypoly.core.values import Float32, Int32, Rollout
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.training_rows import TrainingRow
from raypoly.learner.update_stats import UpdateStats
from raypoly.rollouts.engines import SampleRequest
from raypoly.rollouts.engines.transformers_engine import TransformersEngine
from raypoly.run.store.step_records import CompletedStep
from tests.support.random_model import random_model
from tests.support.timed_services import timed_program
from tests.workflows.step.virtual_run import Recorded, Recorder, Sampler, Stopped, open_virtual, stop_after, taken
from workflows.startup.open_run import OpenRun

OVERRIDES = ("objective.name=upskill", "objective.skills=3", "generator.max_tokens=12", "generator.temperature=0.7")
STEPS = 2


class Model(Recorder):
    """The learner itself, in place of its actor."""

    def __init__(self, config: Config, folder: Path) -> None:
        super().__init__()
        self.own = PolicyLearner(folder, config.train, of_run(config), config.generator.temperature)

    async def begin(self, step: int, normalisers: Normalisers) -> None:
        self.own.begin(step, normalisers)

    async def accumulate(self, rows: Sequence[TrainingRow]) -> None:
        self.own.accumulate(rows)

    async def apply(self) -> UpdateStats:
        return self.own.apply()

    async def cross_logprobs(self, prompts: Sequence[Int32], responses: Sequence[Int32]) -> tuple[Float32, ...]:
        self.told.append("cross")
        return self.own.cross_logprobs(prompts, responses)


class Trained(Recorded):
    """The learner's life over a model in this folder."""

    def __init__(self, config: Config, *arguments: Any, folder: Path) -> None:
        super().__init__(config, *arguments)
        self._model = partial(Model, config, folder)

    def made(self) -> Recorder:
        return self._model()


class Engine(Sampler):
    """An engine with the learner's weights."""

    def __init__(self, config: Config, folder: Path, learner: Any) -> None:
        super().__init__((), False)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._engine = TransformersEngine(folder, config.generator, "float32")
        self._learner = learner

    async def encode(self, texts: Sequence[str]) -> list[Int32]:
        return [np.array(self._tokenizer.encode(said), np.int32) for said in texts]

    async def update_weights(self, deliver: Any) -> None:
        self._engine.update_weights(self._learner.recorder.own.export())

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        self.submitted.append([request.slot for request in requests])
        asked = {request.slot: request for request in requests}
        for slot, samples in self._engine.sample(requests):
            prompt, pairs = asked[slot].prompt_tokens, zip(samples, asked[slot].seeds, strict=True)
            yield (
                slot,
                tuple(Rollout(prompt, s.tokens, s.logprobs, program(seed), "stop", seed, 0) for s, seed in pairs),
            )


def program(seed: int) -> str:
    """One whose service time depends on the seed."""
    return timed_program(0.01 + seed % 2, 1.0, str(seed))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("model"))


async def open_trained(folder: Path, model: Path, commits: int | None) -> OpenRun:
    """`commits`: the driver is gone after so many."""
    opened = await open_virtual(folder, (), OVERRIDES, shared=False, learning=partial(Trained, folder=model))
    opened.services.generator = Engine(opened.config, model, opened.services.learner)  # type: ignore[assignment]
    stop_after(opened.durability.journal, commits)
    await opened.weights.sync()
    return opened


def steps(folder: Path, model: Path, commits: int | None = None) -> Sequence[CompletedStep]:
    """What the journal has of the steps when they are done."""
    return taken(open_trained(folder, model, commits), STEPS).steps


def test_responses_are_as_likely_behind_their_own_prompt_as_when_they_were_sampled(tmp_path: Path, model: Path) -> None:
    done = steps(tmp_path, model)
    assert len({step.applied.digest for step in done}) == STEPS
    differences = []
    for group in (group for step in done for group in step.groups):
        cross = group.cross_logprobs
        assert cross is not None
        for rollout, own, logp_PT in zip(group.rollouts, cross.own_prompt, cross.logprobs, strict=True):
            np.testing.assert_allclose(logp_PT[own], rollout.logprobs, atol=1e-4)
            differences += [np.abs(logp_PT[z] - logp_PT[own]).max() for z in range(3) if z != own]
    assert np.median(differences) > 1e-2, "another prompt makes a difference"
    assert [step.applied.metrics["objective/mi_reward"] != 0.0 for step in done] == [True] * STEPS


def test_a_stop_in_any_stage_and_a_replay_end_in_the_same_weights(tmp_path: Path, model: Path) -> None:
    want = steps(tmp_path / "undisturbed", model)
    for commits in (2, 11, 24):  # a step commits 4 groups, verdicts, log-probabilities, and the update
        folder = tmp_path / f"stopped-{commits}"
        with pytest.raises((ExceptionGroup, Stopped)):
            steps(folder, model, commits)
        got = steps(folder, model)
        assert [step.applied.digest for step in got] == [step.applied.digest for step in want]
        for one, other in zip(got, want, strict=True):
            name = "objective/mi_reward"
            assert one.applied.metrics[name] == other.applied.metrics[name]
            assert [each.tobytes() for each in one.advantages] == [each.tobytes() for each in other.advantages]
