"""The stage `prompt_logprobs`: how likely a group's responses are behind each of the group's prompts, by the learner
under the weights that sampled them."""

from __future__ import annotations

from typing import Any

import numpy as np

from raypoly.algorithms.group_stage import GroupStage
from raypoly.algorithms.objectives.objective_hooks import needed_stages
from raypoly.core.values import CrossLogprobs, Group, Problem
from raypoly.learner.training_rows import prompts_of
from workflows.step.services import Services


class PromptLogprobsStage(GroupStage):
    """Its finding is `CrossLogprobs`; the store has columns for them."""

    name = "prompt_logprobs"
    after = ("score", "judge")
    device = "learner"

    @property
    def timed_as(self) -> str:
        return "cross"  # as the rows of metrics.jsonl call it

    @property
    def used(self) -> bool:
        return self.name in needed_stages(self.objective)

    async def run(self, group: Group, problem: Problem, services: Services) -> CrossLogprobs:
        prompts, own = prompts_of(group.rollouts)
        responses = [rollout.tokens for rollout in group.rollouts]
        logprobs = await services.learner.cross_logprobs(prompts, responses)
        return CrossLogprobs(own, tuple(each.astype(np.float32, copy=False) for each in logprobs))  # as it is kept

    def encode(self, part: Any, size: int) -> Any:
        return part
