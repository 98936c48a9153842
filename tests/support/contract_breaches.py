"""Parts that break their contract, each in one way that people get wrong, and an honest part of each kind."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, field_validator

from raypoly.algorithms.group_stage import GroupStage
from raypoly.algorithms.losses import Loss
from raypoly.algorithms.objectives import Credit, Objective
from raypoly.algorithms.objectives.objective import ObjectiveConfig
from raypoly.core.values import Labels
from raypoly.rollouts.environments import Done, Environment
from raypoly.rollouts.scaffolds import Ask, Scaffold
from raypoly.verifier.rewards import AnsweredGroup
from raypoly.verifier.rewards.terms import Term


def made(base: type, method: str) -> Callable[..., Any]:
    """Makes subclasses of the base by their name and this method."""
    return lambda of, function, **body: type(of, (base,), {method: function, "__module__": __name__, **body})


def either(attempt: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    try:
        return attempt()
    except Exception:  # noqa: BLE001 - a breach
        return otherwise()


def centred(group: Any) -> Any:
    return group.rewards - group.rewards.mean()


objective, labels = made(Objective, "compute"), frozenset({"labels"})
HonestObjective = objective("HonestObjective", lambda self, it: centred(it) - 0.1 * it.degenerate, needs=labels)
GivesWrongTokens = objective("GivesWrongTokens", lambda self, it: [np.zeros(3, np.float32), *centred(it)[1:]])
GivesFloat32 = objective("GivesFloat32", lambda self, it: centred(it).astype(np.float32))
GivesOneLess = objective("GivesOneLess", lambda self, it: centred(it)[1:])
DividesByZero = objective(
    "DividesByZero", lambda self, it: centred(it) * (1 / it.rewards.std() if np.ptp(it.rewards) else np.nan)
)
DrawsGlobally = objective("DrawsGlobally", lambda self, it: centred(it) + np.random.normal(size=it.size))
CALLS: list[float] = []
CountsCalls = objective("CountsCalls", lambda self, it: centred(it) / (CALLS.append(0) or len(CALLS)))  # type: ignore[func-returns-value]
BUFFER = np.zeros(64)
ReusesItsBuffer = objective("ReusesItsBuffer", lambda self, it: np.subtract(it.rewards, 1, out=BUFFER[: it.size]))
ChangesRewards = objective("ChangesRewards", lambda self, it: np.subtract(it.rewards, 1, out=it.rewards).copy())
PaysTheFirst = objective("PaysTheFirst", lambda self, it: centred(it) + (np.arange(it.size) == 0))
PaysDegenerates = objective("PaysDegenerates", lambda self, it: centred(it) + 1.0 * it.degenerate, needs=labels)
ReadsWithoutNeed = objective("ReadsWithoutNeed", lambda self, it: centred(it) - it.lengths / 100)
PaysHighIds = objective(
    "PaysHighIds", lambda self, it: centred(it) + 0.1 * np.where(it.degenerate, 0, it.labels), needs=labels
)
ReadsDegenerateIds = objective(
    "ReadsDegenerateIds", lambda self, it: centred(it) / (it.labels[:, None] == it.labels).sum(axis=0), needs=labels
)
SwallowsErrors = objective("SwallowsErrors", lambda self, it: either(lambda: centred(it), lambda: np.zeros(1)))
HashesOutcomes = objective(
    "HashesOutcomes",
    lambda self, it: centred(it) + np.array([float(hash(each) % 97) for each in it.outcomes]),
    needs=frozenset({"outcomes"}),
)
TakesItsTime = objective("TakesItsTime", lambda self, it: time.sleep(1.1) or centred(it))  # type: ignore[func-returns-value]
KeepsASet = objective("KeepsASet", lambda self, it: centred(it), state_dict=lambda self: {"seen": {1, 2}})
DropsAGroup = objective(
    "DropsAGroup", lambda self, it: centred(it), finish=lambda self, batch: [it for it in batch if it.any()]
)


RemembersLastMean = objective(
    "RemembersLastMean", lambda self, it: it.rewards - vars(self).setdefault("first", it.rewards.mean())
)
HoldsALock = objective(
    "HoldsALock",
    lambda self, it: centred(it),
    __init__=lambda self, config: vars(self).update(config=config, lock=threading.Lock()),
)


class TakesAnything(Objective):
    class Config(BaseModel):
        degenerate_ids: tuple[int, ...] = ()

    def compute(self, group: Any) -> Any:
        return centred(group)


class BadValidator(Objective):
    class Config(ObjectiveConfig):
        weight: float = 1.0

        @field_validator("weight", mode="before")
        @classmethod
        def _halved(cls, value: Any) -> Any:
            return value / 2

    def compute(self, group: Any) -> Any:
        return centred(group)


class ForgetsItsState(Objective):
    needs = frozenset({"problem"})

    def __init__(self, config: ObjectiveConfig) -> None:
        super().__init__(config)
        self.counts: dict[str, int] = {}

    def compute(self, group: Any) -> Any:
        self.counts[group.problem] = self.counts.get(group.problem, 0) + 1
        return centred(group) / self.counts[group.problem]

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = {}


def reward(of: str, function: Any) -> Any:
    function.__name__ = function.__qualname__ = of
    return function


def honest_reward(problem: Any, rollout: Any, verdict: Any, findings: Any) -> float:
    return float(verdict.passed) - 0.001 * len(rollout.text) + findings["brevity"]


async def gives_none_later(problem: Any, rollout: Any, verdict: Any) -> Any:
    return 1.0 if verdict.passed else None


class TooFew(Term):
    def compute(self, group: AnsweredGroup) -> Any:
        return [1.0]


class ByPlace(Term):
    def compute(self, group: AnsweredGroup) -> Any:
        return list(range(group.size))


class Endless(Term):
    def compute(self, group: AnsweredGroup) -> Any:
        return [float("inf") if verdict.passed else 0.0 for verdict in group.verdicts]


gives_text = reward("gives_text", lambda problem, rollout, verdict: 1.0 if verdict.passed else "no")
gives_array = reward("gives_array", lambda problem, rollout, verdict: np.array([verdict.passed]))
divides_by_tests = reward("divides_by_tests", lambda problem, rollout, verdict: 1 / verdict.tests_total)
swallows = reward("swallows", lambda problem, rollout, verdict: either(lambda: len(rollout.text) / 9, lambda: 0.0))
takes_two = reward("takes_two", lambda problem, rollout: 1.0)


def gradient(it: Any) -> Any:
    return -it.advantage_T * it.logp_T


loss = made(Loss, "token_losses")
HonestLoss = loss("HonestLoss", lambda self, it: gradient(it))
GivesMean = loss("GivesMean", lambda self, it: gradient(it).mean())
CentresTheBatch = loss("CentresTheBatch", lambda self, it: -it.advantage_T * (it.logp_T - it.logp_T.mean()))
WeighsByPlace = loss("WeighsByPlace", lambda self, it: gradient(it) * (1 + it.response_T))
HasNoBound = loss(
    "HasNoBound", lambda self, it: -it.advantage_T * (it.logp_T - it.sampler_logp_T).exp(), takes_ratio=True
)
PushesTheWrongWay = loss("PushesTheWrongWay", lambda self, it: -gradient(it))
Detaches = loss("Detaches", lambda self, it: gradient(it).detach())
ReachesMaskedTokens = loss("ReachesMaskedTokens", lambda self, it: -it.advantage_T * it.response_mean(it.logp_T))
HidesItsRatio = loss("HidesItsRatio", lambda self, it: -it.advantage_T * self.ratio(it))
ChangesAdvantages = loss("ChangesAdvantages", lambda self, it: -it.advantage_T.mul_(2) * it.logp_T)
DropsOut = loss("DropsOut", lambda self, it: torch.nn.functional.dropout(gradient(it), 0.5))


def sizes(group: Any) -> Any:
    return [float(len(rollout.text)) for rollout in group.rollouts]


class HonestStage(GroupStage):
    name = "brevity"
    find: Any = staticmethod(sizes)

    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        return self.find(group)


stage = made(HonestStage, "find")
StageOfOneLess = stage("StageOfOneLess", lambda self, it: sizes(it)[1:])
StageOfObjects = stage("StageOfObjects", lambda self, it: [object() for _ in it.rollouts])
StageOfNaN = stage("StageOfNaN", lambda self, it: [size or float("nan") for size in sizes(it)])
StageRanksByPlace = stage("StageRanksByPlace", lambda self, it: [float(place) for place in range(it.size)])
StageNotAsync = made(HonestStage, "run")("StageNotAsync", lambda self, group, problem, services: sizes(group))


class HonestTokens(GroupStage):
    name = "tokens"
    axis = "token"

    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        return [-rollout.own(rollout.logprobs) for rollout in group.rollouts]

    def token_credit(self, finding: Any, rollouts: Any) -> Any:
        return [0.5 * each for each in finding]


class TokensOneLess(HonestTokens):
    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        return [-rollout.own(rollout.logprobs)[1:] for rollout in group.rollouts]


class TokensOfObservations(HonestTokens):
    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        return [np.ones(len(rollout.tokens), np.float32) for rollout in group.rollouts]


class CreditOneLess(HonestTokens):
    def token_credit(self, finding: Any, rollouts: Any) -> Any:
        return [each[1:] for each in finding]


HonestCredit = objective(
    "HonestCredit",
    lambda self, it: Credit([each + place for each, place in zip(it.findings["tokens"], centred(it), strict=True)]),
    needs=frozenset({"tokens"}),
)


class FinishesOneLess(Objective):
    needs = frozenset({"lengths"})

    def compute(self, group: Any) -> Any:
        return Credit([np.ones(tokens, np.float32) for tokens in group.lengths])

    def finish(self, batch: Any) -> Any:
        return [[entry[1:] for entry in group] for group in batch]


class OutcomeOfInfinity(Environment):
    async def respond(self, problem: Any, conversation: Any, services: Any) -> Any:
        return Done(outcome=float("inf"))


class CancelsItself(Environment):
    async def respond(self, problem: Any, conversation: Any, services: Any) -> Any:
        raise asyncio.CancelledError


class StageHidesOutage(HonestStage):
    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        return either(lambda: services.judge.label(group), lambda: sizes(group))


class StageKeepsTheGroup(HonestStage):
    async def run(self, group: Any, problem: Any, services: Any) -> Any:
        self.group = group
        await asyncio.sleep(0)
        return sizes(self.group)[: group.size]


class HonestJudge:
    def __init__(self, config: Any) -> None:
        self.config, self.calls = config, 0

    def label(self, problem: Any, rollouts: Any, verdicts: Any) -> Any:
        out = np.array([verdict.status == "no_code" for verdict in verdicts])
        ids = np.array([1 + len(rollout.text) for rollout in rollouts])
        self.calls += 1
        return self.change(Labels(np.where(out, 0, ids).astype(np.int32), out, "mine-1"), rollouts)

    def change(self, it: Labels, rollouts: Any) -> Any:
        return it

    def probe(self) -> None:
        return None


judge = made(HonestJudge, "change")
JudgeGivesAList = judge("JudgeGivesAList", lambda self, it, _: it.ids.tolist())
JudgeLabelsOneLess = judge("JudgeLabelsOneLess", lambda self, it, _: Labels(it.ids[1:], it.degenerate[1:], it.judge))
JudgeLabelsByPlace = judge(
    "JudgeLabelsByPlace", lambda self, it, _: replace(it, ids=1 + np.arange(len(it.ids), dtype=np.int32))
)
JudgeLabelsByCall = judge(
    "JudgeLabelsByCall", lambda self, it, _: replace(it, ids=it.ids + np.int32(self.calls) * ~it.degenerate)
)
JudgeForgetsDegenerates = judge(
    "JudgeForgetsDegenerates",
    lambda self, it, _: replace(it, ids=it.ids + np.int32(1), degenerate=np.zeros(len(it.ids), np.bool_)),
)
JudgeHashes = judge(
    "JudgeHashes",
    lambda self, it, rows: replace(it, ids=np.array([1 + hash(row.text) % 997 for row in rows], np.int32)),
)


class JudgeSwallows(HonestJudge):
    def label(self, problem: Any, rollouts: Any, verdicts: Any) -> Any:
        none = Labels(np.ones(len(rollouts), np.int32), np.zeros(len(rollouts), np.bool_), "mine-1")
        return either(lambda: super(JudgeSwallows, self).label(problem, rollouts, verdicts), lambda: none)


class JudgeSharesState(HonestJudge):
    def label(self, problem: Any, rollouts: Any, verdicts: Any) -> Any:
        self.rollouts = rollouts
        time.sleep(0.02)
        return super().label(problem, self.rollouts[: len(rollouts)], verdicts)


COLOURS = {"loop", "map", "recursion", "table", "heap", "sort", "stack"}
scaffold = made(Scaffold, "ask")
HonestScaffold = scaffold("HonestScaffold", lambda self, it, drafts, n: [Ask(f"# Use a loop.\n{it.prompt}", count=n)])
AsksOneLess = scaffold("AsksOneLess", lambda self, it, drafts, n: [Ask(it.prompt) for _ in range(n - 1)])
AsksAtRandom = scaffold("AsksAtRandom", lambda self, it, drafts, n: [Ask(f"{it.prompt} {random.random()}", count=n)])
AsksForever = scaffold("AsksForever", lambda self, it, drafts, n: [Ask(it.prompt, "plan")])
ShowsTheTests = scaffold("ShowsTheTests", lambda self, it, drafts, n: [Ask(it.prompt + it.tests.source, count=n)])
AsksBySet = scaffold("AsksBySet", lambda self, it, drafts, n: [Ask(it.prompt + " ".join(COLOURS), count=n)])


class AsksByCall(Scaffold):
    calls = 0

    def ask(self, problem: Any, drafts: Any, attempts: int) -> Any:
        self.calls += 1
        return [Ask(f"{problem.prompt} {self.calls // 9}", count=attempts)]
