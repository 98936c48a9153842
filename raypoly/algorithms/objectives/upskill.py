"""UpSkill: a rollout is paid for being likely under its own skill and unlikely under the others.

    rollout i is sampled behind "Strategy z_i | " + prompt,   z_i = 1 + i mod |Z|        (scaffold `skills`)
    r_mi = alpha * (log p(y | x, z_i) - log( (1/|Z|) * sum over z of p(y | x, z) ))
    A_i = R_i - mean R,  R_i = r_i + r_mi         divided by std R + 1e-6 with `std: sample`

Arxiv 2602.22296: the part of a token, or of a sequence, in the mutual information of skills and answers, with GRPO's
baseline (`std: sample`, as in the paper; `none` is Dr.GRPO's). `level: sequence`, as in the released code, takes p of
the whole response, so r_mi is at most alpha * log |Z|. `level: token`, as in the paper, sums the same over tokens, each
given those before it: it has no bound. p is the sampling policy, after temperature.

Needs the log-probabilities of each response behind every skill: |Z| forward passes of the learner. When: one strategy
for each skill, without a judge. N should be a multiple of |Z|: skills take turns, so otherwise the first have one
rollout more.
Known to go wrong: the policy may learn to say the same in other words, or a wrong thing for each skill: a skill's habit
is paid, right or wrong, and with alpha 5 more than rewards of 0 and 1. With equal rewards, dividing by the deviation
turns the least difference in information into whole advantages, so every group has a gradient. The prefix comes before
the whole prompt, a chat template included. Evaluation uses no prefix, so it does not show skills, unless
`evaluate.scaffolds: [skills]` asks for one attempt a skill in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.grpo import Deviation, GRPOConfig, relative
from raypoly.algorithms.objectives.objective import Credit, Objective, ScoredGroup
from raypoly.core.errors import UsageError
from raypoly.core.values import Float64

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


class UpSkill(Objective):
    Config = UpSkillConfig
    config: UpSkillConfig
    needs = frozenset({"cross_logprobs"})
    scaffold = "skills"

    def check(self, rollouts: int) -> None:
        if self.config.skills > rollouts:
            raise UsageError(
                f"objective.skills={self.config.skills} needs a rollout for each skill, but train.rollouts is "
                f"{rollouts}: lower one or raise the other."
            )

    def scaffold_parameters(self) -> Mapping[str, int]:
        return {"skills": self.config.skills}

    def compute(self, group: ScoredGroup) -> Credit:
        """Measures `mi_reward`: the group's mean r_mi."""
        assert group.cross_logprobs is not None
        assert group.own_prompt is not None
        pairs = zip(group.cross_logprobs, group.own_prompt.tolist(), strict=True)
        bonus = self.config.alpha * np.array([mutual_information(*pair, self.config.level) for pair in pairs])
        advantages = relative(group.rewards + bonus, self.config.std)
        return Credit(advantages, measures={"mi_reward": float(bonus.mean())})


def mutual_information(logp_ZT: Float64, own: int, level: Level) -> float:
    """The information of a response about its skill, in nats, from its tokens' log-probabilities behind each skill."""
    logp_ZA = logp_ZT.sum(axis=1, keepdims=True) if level == "sequence" else logp_ZT
    return float(information(logp_ZA, own).sum())


def information(logp_ZA: Float64, own: int) -> Float64:
    """log p(a | own) - log mean over z of p(a | z), float64 [A], by log p(a | z)."""
    highest_A = logp_ZA.max(axis=0)
    mean_A = np.exp(logp_ZA - highest_A).mean(axis=0)
    out: Float64 = logp_ZA[own] - highest_A - np.log(mean_A)
    return out
