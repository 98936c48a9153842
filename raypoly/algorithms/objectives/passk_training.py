"""Pass@k Training: a rollout is worth the normalised reward of the groups of k that it is in.

A group G of k rollouts has R_G = max of its rewards: 1 where one passes. Over all groups of k among N (`analytic`,
arXiv 2508.10751), with rho and sigma the mean and standard deviation of R_G:

    A_i = (mean of R_G over the groups with i - rho) / sigma

For rewards of 0 and 1 that is the paper's closed form, rho = 1 - C(wrong, k)/C(N, k) and sigma = sqrt(rho (1 - rho));
it holds for graded rewards too. It is set RL's mean-reduced advantage of f = max, divided by sigma; k=1 is GRPO with
the population's standard deviation. `bootstrap` draws groups instead, each uniform whatever the others are, normalises
their rewards over the groups drawn, and sums over the groups with i: about k times `analytic` for N groups. A rollout
in no group gets 0. The draw is seeded by `seed` and the group's own rewards.

Needs rewards alone. For the gradient of pass@k at a scale like GRPO's, whatever k is. A run's groups come whole; one
passed in by hand may be smaller, and is refused from k rollouts down. Known to go wrong: sigma is small where nearly
every set passes, or nearly none, so that the few wrong (or right) rollouts weigh much; and a problem of which fewer
than k rollouts are wrong weighs nothing. The authors' code adds 1e-6 to sigma; here sigma = 0 gives zeros.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from raypoly.algorithms.objectives.levels import Levels
from raypoly.algorithms.objectives.objective import Objective, ObjectiveConfig, ScoredGroup
from raypoly.algorithms.objectives.set_functions import refuse_whole_group, seed_of
from raypoly.algorithms.objectives.subset_draws import independent_sets
from raypoly.core.values import Float64, Int32


class PassKTrainingConfig(ObjectiveConfig):
    k: int = Field(4, ge=1, description="Rollouts in a group, whose best one counts; smaller than train.rollouts (N).")
    estimator: Literal["analytic", "bootstrap"] = Field(
        "analytic", description="Over all groups of k, or over `bootstrap_groups` drawn ones."
    )
    bootstrap_groups: int | None = Field(
        None, ge=1, description="Groups to draw with `estimator: bootstrap`. Empty: as many as rollouts."
    )
    seed: int = Field(0, description="Seed of that draw, beside the group's own rewards.")


class PassKTraining(Objective):
    Config = PassKTrainingConfig
    config: PassKTrainingConfig

    def check(self, rollouts: int) -> None:
        refuse_whole_group(self.config.k, rollouts, key="k")

    def compute(self, group: ScoredGroup) -> Float64:
        self.check(group.size)
        k = self.config.k
        if self.config.estimator == "analytic":
            return analytic(group.rewards, k)
        rng = np.random.default_rng(seed_of(group, self.config.seed))
        return of_groups(
            group.rewards, independent_sets(rng, group.size, k, self.config.bootstrap_groups or group.size)
        )


def analytic(rewards: Float64, k: int) -> Float64:
    """Advantages over all groups of k, float64 [N]."""
    levels = Levels.of_rewards(rewards)
    sigma = levels.spread(k)
    if sigma == 0:
        return np.zeros_like(rewards)
    return (levels.best_beside(k) - levels.best(k)) / sigma


def of_groups(rewards: Float64, groups_Kk: Int32) -> Float64:
    """Advantages of rollouts from the groups [K, k] that were drawn, float64 [N]; 0 for a rollout in none."""
    best = rewards[groups_Kk].max(axis=1)
    if np.all(best == best[0]):
        return np.zeros_like(rewards)
    normalised = (best - best.mean()) / best.std()
    weights = np.repeat(normalised, groups_Kk.shape[1])
    return np.bincount(groups_Kk.ravel(), weights=weights, minlength=len(rewards)).astype(np.float64)
