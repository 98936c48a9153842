"""PKPO: a rollout is worth its part in pass@k, or in max@k where rewards are graded.

Over all sets I of k among N rollouts, C(N, k) of them, with g the rewards (arXiv 2505.15201):

    none          s_i = (1/C(N, k)) * sum over I with i of max_I g
    loo           s_i - mean over j of s_j as it is on the N-1 rollouts without i
    loo_minus_one (1/C(N, k)) * sum over I with i of (max_I g - max_{I without i} g)

Each sum of s_i * grad log pi(y_i) is an unbiased gradient of E max of k rollouts, exact here in O(N log N). With graded
rewards (`reward.name: fraction`) `none` is the on-policy objective of max@k (Best of N Worlds, arXiv 2510.23393).
s_i = (k/N) * (mean of max over the sets with i), so set RL's mean-reduced advantage of f = max is (N/k) s_i - rho.

Needs rewards alone. For tasks where k attempts are made and the best one counts; a large k first and 1 later is
reported to do well. A run's groups come whole; a k that does not fit N, or the rollouts passed in by hand, is refused.
Known to go wrong: `none` has a high variance, and is far from centred; `loo` is not centred either, its two terms being
of N and of N-1 rollouts (all right of N=4 with k=2 get -1/6 each). `loo_minus_one` is never negative, so wrong answers
lose only what the softmax gives to right ones, and it is zero where fewer than k-1 rollouts are worse: a large k learns
nothing from easy problems.
"""

from typing import Literal

from pydantic import Field

from raypoly.algorithms.objectives.levels import Levels
from raypoly.algorithms.objectives.objective import Objective, ObjectiveConfig, ScoredGroup
from raypoly.core.errors import UsageError
from raypoly.core.values import Float64


class PKPOConfig(ObjectiveConfig):
    k: int = Field(4, ge=1, description="Attempts of which the best counts; at most train.rollouts (N).")
    baseline: Literal["none", "loo", "loo_minus_one"] = Field(
        "loo_minus_one",
        description="`loo`: the mean on the other rollouts (k < N); `loo_minus_one`: the best of each set without the "
        "rollout (k > 1).",
    )


class PKPO(Objective):
    Config = PKPOConfig
    config: PKPOConfig

    def check(self, rollouts: int) -> None:
        k, baseline = self.config.k, self.config.baseline
        most = rollouts - 1 if baseline == "loo" else rollouts
        if k > most:
            raise UsageError(f"objective.k={k} must be at most {most} with baseline {baseline} of {rollouts} rollouts.")
        if k == 1 and baseline == "loo_minus_one":
            raise UsageError(
                "objective.k=1 has no baseline loo_minus_one (a set without its rollout is empty): "
                "use none or loo, or objective.name=grpo, which is for pass@1."
            )

    def compute(self, group: ScoredGroup) -> Float64:
        self.check(group.size)
        N, k = group.size, self.config.k
        levels = Levels.of_rewards(group.rewards)
        if self.config.baseline == "loo_minus_one":
            return levels.lift(k) * (k / N)
        s = levels.best_beside(k) * (k / N)
        return s if self.config.baseline == "none" else s - levels.best_without(k) * (k / (N - 1))
