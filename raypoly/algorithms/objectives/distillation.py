"""Nothing but the teacher: every advantage is what `distill.teacher` says of each token (docs/credit.md).

    A_t = weight * clip(log p_teacher - log p_sampler, -c, c)          of the sampled token, without discount

The gradient is that of the reverse KL to the teacher, token by token, on the policy's own samples (Agarwal et al.,
arXiv 2306.13649; Gu et al., arXiv 2306.08543). Beside any other objective the same is added to its advantages. Needs no
reward, no test and no judge, and any N. When: a larger or an earlier model can already do what is to be learnt.
Known to go wrong: it ends where the teacher ends, mistakes and collapse included; what the student never samples is
never taught; a token far from the teacher's is punished alone, though the mistake may lie before it.
"""

import numpy as np

from raypoly.algorithms.objectives.objective import Objective, ScoredGroup
from raypoly.core.values import Float64


class Distillation(Objective):
    reads_rewards = runs_programs = False

    def compute(self, group: ScoredGroup) -> Float64:
        return np.zeros(group.size)
