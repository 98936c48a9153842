"""How likely a group's responses are behind each of its prompts, by the learner, for objectives that ask for it.

    group = await Crossing(parts).cross(group, watch)

The weights are those that sampled: it is done before the step's first update. What was computed is in the journal
before the objective sees it, so a run that is killed goes on with the same bits.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from raypoly.policy.training_rows import prompts_of
from raypoly.store.step_records import Crossed
from raypoly.values import CrossLogprobs, Group
from workflows.step.parts import Parts
from workflows.step.stopwatch import Stopwatch


class Crossing:
    """One run's; does nothing where the objective does not need it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.wanted = "cross_logprobs" in parts.objective.needs
        self._turn = asyncio.Lock()
        """A call at a time, so that none waits for long in the learner's queue."""

    async def cross(self, group: Group, watch: Stopwatch) -> Group:
        """The group with its log-probabilities across prompts; as it is where nobody asks for them."""
        if not self.wanted or group.cross_logprobs is not None or not self._parts.stages.counts(group):
            return group
        prompts, own = prompts_of(group.rollouts)
        await self._parts.generator.idle()
        async with self._turn:
            with watch.stage("cross", group.slot):
                responses = [rollout.tokens for rollout in group.rollouts]
                logprobs = await self._parts.learning.cross_logprobs(prompts, responses)
        found = CrossLogprobs(own, tuple(each.astype(np.float32, copy=False) for each in logprobs))  # as it is kept
        await self._parts.commit(Crossed(group.step, group.slot, found))
        watch.done("cross")
        return replace(group, cross_logprobs=found)
