"""UpSkill: a rollout is paid for being what its own skill would say and the other skills would not.

    rollout i is sampled behind "Strategy z_i | " + prompt,   z_i = 1 + i mod |Z|
    r_mi = alpha * (log p(y | x, z_i) - log( (1/|Z|) * sum over z of p(y | x, z) ))
    A_i = R_i - mean R,  R_i = r_i + r_mi         divided by std R + 1e-6 where `std` says so

Arxiv 2602.22296: a token's, or a sequence's, part in the mutual information of skills and answers, with GRPO's baseline
(`std: sample`, as there; `none` is Dr.GRPO's). `level: sequence`, as in the released code, takes p of the whole
response, so r_mi is at most alpha * log |Z|. `level: token`, as in the paper, takes the same of each token behind those
before it and adds them up: then nothing bounds it. p is the policy that samples, after temperature.

Needs the log-probabilities of each response behind every skill: |Z| forward passes of the learner. When: strategies
shall be had for the asking, one for each skill, without a judge. N should be a multiple of |Z|; skills come round in
turn, so rollouts of low ones are more where it is not.
Known to go wrong: the policy may learn to say the same in other words, or a wrong thing of its own: a skill's habit is
paid, right or wrong, and with alpha 5 more than rewards of 0 and 1. Where rewards are equal, a deviation that divides
makes whole advantages of the least difference in information, so every group has a gradient. The prefix stands before
the whole prompt, a chat template included. Evaluation asks without one, so what only a skill knows does not show there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from raypoly.errors import UsageError
from raypoly.objectives.grpo import GRPO, Deviation, GRPOConfig, relative
from raypoly.objectives.objective import ScoredGroup
from raypoly.values import Float64

Level = Literal["sequence", "token"]


class UpSkillConfig(GRPOConfig):
    skills: int = Field(5, ge=2, description="|Z|, at most train.rollouts.")
    alpha: float = Field(5.0, ge=0, description="What a nat of information on the skill is worth, in rewards.")
    level: Level = Field(
        "sequence", description="Of whole responses (the released code), or a sum over their tokens (the paper)."
    )
    std: Deviation = Field(
        "sample", description="Divide by the group's standard deviation: `none` is Dr.GRPO, `sample` has ddof=1."
    )


class UpSkill(GRPO):
    Config = UpSkillConfig
    config: UpSkillConfig
    needs = frozenset({"cross_logprobs"})

    def __init__(self, config: UpSkillConfig) -> None:
        super().__init__(config)
        self._measures: Mapping[str, float] = {}

    def check(self, rollouts: int) -> None:
        if self.config.skills > rollouts:
            raise UsageError(
                f"objective.skills={self.config.skills} needs a rollout for each skill, and train.rollouts is "
                f"{rollouts}: lower one or raise the other."
            )

    def prompts(self, prompt: str, rollouts: int) -> tuple[str, ...]:
        return tuple(f"Strategy {1 + i % self.config.skills} | {prompt}" for i in range(rollouts))

    def compute(self, group: ScoredGroup) -> Float64:
        assert group.cross_logprobs is not None
        assert group.own_prompt is not None
        pairs = zip(group.cross_logprobs, group.own_prompt.tolist(), strict=True)
        bonus = self.config.alpha * np.array([mutual_information(*pair, self.config.level) for pair in pairs])
        self._measures = {"mi_reward": float(bonus.mean())}
        return relative(group.rewards + bonus, self.config.std)

    def measures(self) -> Mapping[str, float]:
        """`mi_reward`: the group's mean r_mi."""
        return self._measures


def mutual_information(logp_ZT: Float64, own: int, level: Level) -> float:
    """What a response says of its skill, in nats, by its tokens' log-probabilities behind each skill."""
    logp_ZA = logp_ZT.sum(axis=1, keepdims=True) if level == "sequence" else logp_ZT
    return float(information(logp_ZA, own).sum())


def information(logp_ZA: Float64, own: int) -> Float64:
    """log p(a | own) - log mean over z of p(a | z), float64 [A], by log p(a | z)."""
    highest_A = logp_ZA.max(axis=0)
    mean_A = np.exp(logp_ZA - highest_A).mean(axis=0)
    out: Float64 = logp_ZA[own] - highest_A - np.log(mean_A)
    return out
