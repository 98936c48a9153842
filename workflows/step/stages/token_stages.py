"""Group stages with a number for each token: log-probabilities under the frozen starting model and under a teacher."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from actors.learner import LearnerActor
from actors.model_files import download_model
from raypoly.algorithms import losses
from raypoly.algorithms.group_stage import GroupStage, StageModel
from raypoly.algorithms.objectives import Objective
from raypoly.core.config import Config
from raypoly.core.errors import Away
from raypoly.core.gguf_models import GgufModel
from raypoly.core.values import Float32, Float64, Group, Problem, Rollout
from raypoly.data.templates import load_tokenizer
from raypoly.planning.model_shape import teacher_folder
from raypoly.planning.preflight import asks_learner_device
from raypoly.rollouts.teacher_model import TeacherSpec, check_tokenizers
from workflows.step.services import Services

if TYPE_CHECKING:
    from raypoly.rollouts.teacher_server import TeacherServer


class LogprobsStage(GroupStage):
    """Log-probabilities of each rollout's tokens under another model, after temperature, that give credit."""

    axis = "token"
    after = ("score", "judge", "grades")

    @abstractmethod
    def credit_of(self, ratio: Float64) -> Float64:
        """Of one rollout, float64 [T], by log p_sampler - log p_other of its tokens."""

    def token_credit(self, finding: Any, rollouts: Sequence[Rollout]) -> Sequence[Float64]:
        return [self.credit_of(ratio) for ratio in _ratios(finding, rollouts)]

    def measures(self, finding: Any, group: Group) -> Mapping[str, float]:
        """`kl`: the mean of log p_sampler - log p_other over the group's tokens, in nats."""
        ratios = np.concatenate([np.zeros(0), *_ratios(finding, group.rollouts)])
        return {"kl": float(ratios.mean())} if ratios.size else {}


class ReferenceLogprobsStage(LogprobsStage):
    """`loss.kl_in_reward`, beta: a token's advantage is less by beta times the sum, over itself and what follows, of
    log p_sampler - log p_reference."""

    name = "reference_logprobs"
    device = "learner"

    def __init__(self, config: Config, objective: Objective) -> None:
        super().__init__(config, objective)
        self._beta = losses.of_run(config).config.kl_in_reward

    @property
    def used(self) -> bool:
        return self._beta > 0

    def credit_of(self, ratio: Float64) -> Float64:
        return -self._beta * np.cumsum(ratio[::-1])[::-1]

    async def run(self, group: Group, problem: Problem, services: Services) -> Sequence[Float32]:
        return _own(await services.learner.ask("reference", LearnerActor.reference_logprobs, _pairs(group)), group)


class TeacherLogprobsStage(LogprobsStage):
    """`distill`: a token's advantage is more by weight times log p_teacher - log p_sampler, held within +-clip."""

    name = "teacher_logprobs"

    def __init__(self, config: Config, objective: Objective) -> None:
        super().__init__(config, objective)
        self._distill = config.distill
        if asks_learner_device(self._distill):
            self.device = "learner"  # type: ignore[misc]
        self._answers: dict[tuple[int, int, int], Float32] = {}

    @property
    def used(self) -> bool:
        return self._distill.teacher is not None

    def credit_of(self, ratio: Float64) -> Float64:
        return -self._distill.weight * np.clip(ratio, -self._distill.clip, self._distill.clip)

    @property
    def asked_model(self) -> StageModel | None:
        config, distill = self.config, self._distill
        if distill.teacher is None or distill.server:
            return None
        here = self._folder_here()
        return StageModel(self.folder, TeacherSpec.of(config), config.train.threads, None if here else distill.teacher)

    @cached_property
    def folder(self) -> Path:
        return self._folder_here() or download_model(self._distill.teacher or "", key="distill.teacher")

    def _folder_here(self) -> Path | None:
        """None for a name on the hub."""
        teacher = self._distill.teacher or ""
        gguf = GgufModel.find(teacher, "distill.teacher")
        return gguf.folder() if gguf else teacher_folder(teacher)

    @cached_property
    def server(self) -> TeacherServer:
        from raypoly.rollouts.teacher_server import TeacherServer  # its HTTP client takes half a second of CPU

        return TeacherServer(self._distill)

    def check_student(self, folder: Path) -> None:
        """Raise `UsageError` where the teacher has another tokenizer, or its server is away."""
        student = load_tokenizer(str(folder), "model.path")
        if self._distill.server:
            self.server.check(student)
        else:
            teacher = load_tokenizer(str(self.folder), "distill.teacher")
            check_tokenizers(student, teacher, self._distill.teacher or "")

    async def run(self, group: Group, problem: Problem, services: Services) -> Sequence[Float32]:
        if not self._distill.server:
            return _own(await services.models[self.name].ask(_pairs(group)), group)
        asked = [self._answer(group, place) for place in range(group.size)]
        answered = await asyncio.gather(*asked, return_exceptions=True)  # so that all answers of this try are kept
        failed = [each for each in answered if isinstance(each, BaseException)]
        if away := [each for each in failed if isinstance(each, Away)]:
            raise away[0]
        keys = [(group.step, group.slot, place) for place in range(group.size)]
        found = [self._answers.pop(key) for key in keys if key in self._answers]
        if failed:
            raise failed[0]
        return _own(found, group)

    def close(self) -> None:
        if "server" in vars(self):
            self.server.close()
        if "_threads" in vars(self):
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def probe(self, group: Group, problem: Problem, services: Services) -> None:
        if self._distill.server:
            await asyncio.to_thread(self.server.probe)

    async def _answer(self, group: Group, place: int) -> None:
        # What came before an outage is not asked again after it.
        key = group.step, group.slot, place
        if key not in self._answers:
            rollout, loop = group.rollouts[place], asyncio.get_running_loop()
            ask = partial(self.server.ask, rollout.prompt_tokens, rollout.tokens)
            self._answers[key] = await loop.run_in_executor(self._threads, ask)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._distill.concurrency, thread_name_prefix="teacher")


def _pairs(group: Group) -> list[tuple[Any, Any]]:
    return [(rollout.prompt_tokens, rollout.tokens) for rollout in group.rollouts]


def _own(found: Sequence[Float32], group: Group) -> list[Float32]:
    """Without those of observations."""
    return [rollout.own(values) for values, rollout in zip(found, group.rollouts, strict=True)]


def _ratios(finding: Sequence[Float32], rollouts: Sequence[Rollout]) -> list[Float64]:
    pairs = zip(finding, rollouts, strict=True)
    return [rollout.own(rollout.logprobs).astype(np.float64) - other.astype(np.float64) for other, rollout in pairs]
