"""Parts that break their contract, each in one way that people get wrong, and one honest part of each kind."""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from pydantic import BaseModel, field_validator

from raypoly.algorithms.group_stage import GroupStage
from raypoly.algorithms.losses import Loss, LossConfig, Tokens
from raypoly.algorithms.objectives import Objective, ScoredGroup
from raypoly.algorithms.objectives.objective import ObjectiveConfig
from raypoly.core.values import Labels
from raypoly.rollouts.scaffolds import Ask, Scaffold


def centred(group: ScoredGroup) -> Any:
    return group.rewards - group.rewards.mean()


class HonestObjective(Objective):
    needs = frozenset({"labels", "lengths"})

    def compute(self, group: ScoredGroup) -> Any:
        assert group.degenerate is not None
        assert group.lengths is not None
        return centred(group) - 0.01 * (group.lengths - group.lengths.mean()) - 0.1 * group.degenerate


class GivesList(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        return centred(group).tolist()


class GivesFloat32(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        return centred(group).astype(np.float32)


class GivesOneLess(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        return centred(group)[1:]


class DividesByZero(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        with np.errstate(all="ignore"):
            return centred(group) / group.rewards.std()


class DrawsGlobally(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        return centred(group) + np.random.normal(size=group.size)


class CountsCalls(Objective):
    calls = 0

    def compute(self, group: ScoredGroup) -> Any:
        self.calls += 1
        return centred(group) / self.calls


class RemembersLastMean(Objective):
    last: ClassVar[list[float]] = [0.0]

    def compute(self, group: ScoredGroup) -> Any:
        found = group.rewards - self.last[0]
        self.last[0] = float(group.rewards.mean())
        return found


class ReusesItsBuffer(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        buffer = self.__dict__.setdefault("buffer", np.zeros(64))
        buffer[: group.size] = centred(group)
        return buffer[: group.size]


class ChangesRewards(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        rewards = group.rewards
        rewards -= rewards.mean()
        return rewards.copy()


class PaysTheFirst(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        return centred(group) + (np.arange(group.size) == 0)


class PaysDegenerates(Objective):
    needs = frozenset({"labels"})

    def compute(self, group: ScoredGroup) -> Any:
        return centred(group) + 1.0 * group.degenerate  # type: ignore[operator]


class CountsDegenerateIds(Objective):
    needs = frozenset({"labels"})

    def compute(self, group: ScoredGroup) -> Any:
        _, places, counts = np.unique(group.labels, return_inverse=True, return_counts=True)  # type: ignore[call-overload]
        return centred(group) / counts[places]


class PaysHighIds(Objective):
    needs = frozenset({"labels"})

    def compute(self, group: ScoredGroup) -> Any:
        return centred(group) + 0.1 * np.where(group.degenerate, 0, group.labels)  # type: ignore[arg-type]


class ReadsWithoutNeed(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        return centred(group) - group.lengths / 100  # type: ignore[operator]


class SwallowsErrors(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        try:
            return centred(group)
        except Exception:
            return np.zeros(1)


class HashesOutcomes(Objective):
    needs = frozenset({"outcomes"})

    def compute(self, group: ScoredGroup) -> Any:
        return centred(group) + np.array([hash(it) % 7 for it in group.outcomes or ()], np.float64)


class HoldsALock(Objective):
    def __init__(self, config: ObjectiveConfig) -> None:
        super().__init__(config)
        self.lock = threading.Lock()

    def compute(self, group: ScoredGroup) -> Any:
        return centred(group)


class TakesItsTime(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        time.sleep(1.1)
        return centred(group)


class Hidden(Objective):
    class Config(BaseModel):
        degenerate_ids: tuple[int, ...] = ()
        weight: float = 1.0

    def compute(self, group: ScoredGroup) -> Any:
        return centred(group)


class BadValidator(Objective):
    class Config(ObjectiveConfig):
        weight: float = 1.0

        @field_validator("weight", mode="before")
        @classmethod
        def _halved(cls, value: Any) -> Any:
            return value / 2

    def compute(self, group: ScoredGroup) -> Any:
        return centred(group)


class KeepsASet(Objective):
    seen: ClassVar[set[str]] = set()

    def compute(self, group: ScoredGroup) -> Any:
        return centred(group)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": {1, 2}}


class ForgetsItsState(Objective):
    needs = frozenset({"problem"})
    counts: dict[str, int]

    def __init__(self, config: ObjectiveConfig) -> None:
        super().__init__(config)
        self.counts = {}

    def compute(self, group: ScoredGroup) -> Any:
        seen = self.counts[group.problem or ""] = self.counts.get(group.problem or "", 0) + 1
        return centred(group) / seen

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = {}


class DropsAGroup(Objective):
    def compute(self, group: ScoredGroup) -> Any:
        return centred(group)

    def finish(self, batch: Any) -> Any:
        return [it for it in batch if it.any()]


def honest_reward(problem: Any, rollout: Any, verdict: Any, findings: Any) -> float:
    return float(verdict.passed) - 0.001 * len(rollout.text) + findings["brevity"]


def gives_none(problem: Any, rollout: Any, verdict: Any) -> Any:
    return 1.0 if verdict.passed else None


def gives_array(problem: Any, rollout: Any, verdict: Any) -> Any:
    return np.array([verdict.passed])


def gives_infinity(problem: Any, rollout: Any, verdict: Any) -> Any:
    return float("inf") if rollout.text == "" else 1.0


async def gives_coroutine(problem: Any, rollout: Any, verdict: Any) -> Any:
    return 1.0


def divides_by_tests(problem: Any, rollout: Any, verdict: Any) -> Any:
    return verdict.tests_passed / verdict.tests_total


def swallows(problem: Any, rollout: Any, verdict: Any) -> Any:
    try:
        return float("def" in rollout.text and verdict.passed)
    except Exception:
        return 0.0


def seeds_globally(problem: Any, rollout: Any, verdict: Any) -> Any:
    random.seed(0)
    return random.random()


def sets_variables(problem: Any, rollout: Any, verdict: Any) -> Any:
    os.environ["SCORED"] = rollout.text[:3]
    return 1.0


def takes_two(problem: Any, rollout: Any) -> Any:
    return 1.0


class HonestLoss(Loss):
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.advantage_T * tokens.logp_T


class GivesMean(Loss):
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return (-tokens.advantage_T * tokens.logp_T).mean()


class DividesByTokens(Loss):
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.advantage_T * tokens.logp_T / len(tokens.logp_T)


class CentresOverTheBatch(Loss):
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.advantage_T * (tokens.logp_T - tokens.logp_T.mean())


class WeighsByPlace(Loss):
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.advantage_T * tokens.logp_T * (1 + tokens.response_T)


class HasNoBound(Loss):
    takes_ratio = True

    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.advantage_T * (tokens.logp_T - tokens.sampler_logp_T).exp()


class PushesTheWrongWay(Loss):
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return tokens.advantage_T * tokens.logp_T


class Detaches(Loss):
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.advantage_T * tokens.logp_T.detach()


class ReachesMaskedTokens(Loss):
    takes_ratio = True

    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.advantage_T * tokens.response_mean(tokens.logp_T - tokens.sampler_logp_T).clamp(-20, 20).exp()


class HidesItsRatio(Loss):
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.advantage_T * self.ratio(tokens)


class PullsZeros(Loss):
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return (tokens.logp_T - tokens.advantage_T).square()


class ChangesAdvantages(Loss):
    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.advantage_T.mul_(2) * tokens.logp_T


class LossTakesAnything(Loss):
    class Config(LossConfig, extra="allow"):
        pass

    def token_losses(self, tokens: Tokens) -> torch.Tensor:
        return -tokens.advantage_T * tokens.logp_T


class HonestStage(GroupStage):
    name = "brevity"

    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        return [1.0 / (1 + len(rollout.text)) for rollout in group.rollouts]


class StageOfOneLess(HonestStage):
    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        return (await super().run(group, problem, services))[1:]


class StageOfObjects(HonestStage):
    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        return [object() for _ in group.rollouts]


class StageOfNaN(HonestStage):
    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        return [len(rollout.text) / 3 if rollout.text else float("nan") for rollout in group.rollouts]


class StageNotAsync(HonestStage):
    def run(self, group: Any, problem: Any, services: Any) -> Any:  # type: ignore[override]
        return [1.0] * group.size


class StageHidesOutage(HonestStage):
    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        try:
            return await services.judge.label(group)
        except Exception:
            return [0.0] * group.size


class StageKeepsTheGroup(HonestStage):
    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        import asyncio

        self.group = group
        await asyncio.sleep(0)
        return [float(len(rollout.text)) for rollout in self.group.rollouts][: group.size]


class StageRanksByPlace(HonestStage):
    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        return [float(place) for place in range(group.size)]


class StageMeasuresArrays(HonestStage):
    def measures(self, finding: Any) -> Any:
        return {"all": np.asarray(finding)}


class StageHasATakenName(HonestStage):
    name = "lengths"


class StageCantDecode(HonestStage):
    columns: ClassVar = {"value": pa.float64()}

    def decode(self, rows: Any) -> Any:
        return super().decode(rows) * 2


class HonestJudge:
    def __init__(self, config: Any) -> None:
        self.config = config

    def label(self, problem: Any, rollouts: Any, verdicts: Any) -> Labels:
        out = np.array([verdict.status == "no_code" for verdict in verdicts])
        ids = [1 + len(rollout.text) for rollout in rollouts]
        return Labels(np.where(out, 0, ids).astype(np.int32), out, "mine-1")

    def probe(self) -> None:
        return None


class JudgeLabelsOneLess(HonestJudge):
    def label(self, *args: Any) -> Labels:
        found = super().label(*args)
        return replace(found, ids=found.ids[1:], degenerate=found.degenerate[1:])


class JudgeLabelsByPlace(HonestJudge):
    def label(self, problem: Any, rollouts: Any, verdicts: Any) -> Labels:
        found = super().label(problem, rollouts, verdicts)
        return replace(found, ids=(np.arange(len(rollouts)) // 2 + 1).astype(np.int32))


class JudgeLabelsByCall(HonestJudge):
    calls = 0

    def label(self, *args: Any) -> Labels:
        self.calls += 1
        found = super().label(*args)
        return replace(found, ids=np.where(found.degenerate, 0, found.ids + self.calls).astype(np.int32))


class JudgeGivesAList(HonestJudge):
    def label(self, *args: Any) -> Any:
        return super().label(*args).ids.tolist()


class JudgeGivesInt64(HonestJudge):
    def label(self, *args: Any) -> Any:
        found = super().label(*args)
        return replace(found, ids=found.ids.astype(np.int64))


class JudgeForgetsDegenerates(HonestJudge):
    def label(self, *args: Any) -> Any:
        found = super().label(*args)
        return replace(found, ids=found.ids + np.int32(1), degenerate=np.zeros(len(found.ids), np.bool_))


class JudgeHashes(HonestJudge):
    def label(self, problem: Any, rollouts: Any, verdicts: Any) -> Any:
        found = super().label(problem, rollouts, verdicts)
        ids = [1 + hash(rollout.text) % 1000 for rollout in rollouts]
        return replace(found, ids=np.where(found.degenerate, 0, ids).astype(np.int32))


class JudgeSwallows(HonestJudge):
    def label(self, problem: Any, rollouts: Any, verdicts: Any) -> Any:
        try:
            return super().label(problem, rollouts, verdicts)
        except Exception:
            size = len(rollouts)
            return Labels(np.ones(size, np.int32), np.zeros(size, np.bool_), "mine-1")


class JudgeSharesState(HonestJudge):
    def label(self, problem: Any, rollouts: Any, verdicts: Any) -> Any:
        self.rollouts = rollouts
        time.sleep(0.02)
        return super().label(problem, self.rollouts[: len(rollouts)], verdicts)


class JudgeHasNoProbe:
    def __init__(self, config: Any) -> None:
        self.label = HonestJudge(config).label

    label: Any = HonestJudge.label


class HonestScaffold(Scaffold):
    def ask(self, problem: Any, drafts: Any, attempts: int) -> Any:
        return [Ask(f"# Use a loop.\n{problem.prompt}", count=attempts)]


class AsksOneLess(Scaffold):
    def ask(self, problem: Any, drafts: Any, attempts: int) -> Any:
        return [Ask(problem.prompt) for _ in range(attempts - 1)]


class AsksAtRandom(Scaffold):
    def ask(self, problem: Any, drafts: Any, attempts: int) -> Any:
        return [Ask(f"{problem.prompt} {random.random()}", count=attempts)]


class AsksByCall(Scaffold):
    calls = 0

    def ask(self, problem: Any, drafts: Any, attempts: int) -> Any:
        self.calls += 1
        return [Ask(f"{problem.prompt} {self.calls // 9}", count=attempts)]


class AsksForever(Scaffold):
    def ask(self, problem: Any, drafts: Any, attempts: int) -> Any:
        return [Ask(problem.prompt, "plan")]


class ShowsTheTests(Scaffold):
    def ask(self, problem: Any, drafts: Any, attempts: int) -> Any:
        return [Ask(problem.prompt + problem.tests.source, count=attempts)]


class AsksInTexts(Scaffold):
    def ask(self, problem: Any, drafts: Any, attempts: int) -> Any:
        return [problem.prompt] * attempts


class ChangesTheProblem(Scaffold):
    def ask(self, problem: Any, drafts: Any, attempts: int) -> Any:
        problem.metadata["asked"] = "yes"
        return [Ask(problem.prompt, count=attempts)]


class AsksBySet(Scaffold):
    def ask(self, problem: Any, drafts: Any, attempts: int) -> Any:
        return [Ask(problem.prompt + next(iter({"loop", "map", "recursion", "table", "heap"})), count=attempts)]


class BlocksOfHalves(HonestScaffold):
    def block(self, attempts: int) -> Any:
        return attempts / 2
