"""The two kinds of work that a preparation has done by actors: known solutions are run, and the base model samples."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import numpy as np

from actors.generator import Generator
from actors.scorer import ScorerPool
from raypoly.engines import SampleRequest
from raypoly.preparing.candidates import Candidate
from raypoly.preparing.prepare_config import SamplingConfig
from raypoly.seeds import derive
from raypoly.values import Group, Problem, Rollout, Verdict
from workflows.step.group_verdicts import verdicts_of
from workflows.step.skipped_groups import SkippedGroups


class Solutions:
    """A problem's own solution stands in place of a sample; its program is run as it is."""

    def __init__(self, scorers: ScorerPool, aside: SkippedGroups) -> None:
        self._scorers, self._aside = scorers, aside

    async def sample(self, chunk: Sequence[Candidate]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        nothing = np.zeros(0, np.int32)
        for slot in range(len(chunk)):
            yield slot, (Rollout(nothing, nothing, np.zeros(0, np.float32), "", "stop", 0, 0),)

    async def verdicts(self, group: Group, candidate: Candidate) -> tuple[Verdict, ...]:
        problem = candidate.problem
        # without its solution it is not calibrated: the limits are those of the config
        alone: Problem = replace(problem, solution="")
        return await self._aside.verdicts(
            problem, 1, lambda: self._scorers.score(alone, [problem.solution], order=group.step)
        )


class Samples:
    """The base model's responses, whose seeds depend on the problem alone."""

    def __init__(self, generator: Generator, scorers: ScorerPool, aside: SkippedGroups, config: SamplingConfig) -> None:
        self._generator, self._scorers, self._aside, self._config = generator, scorers, aside, config
        self._one = asyncio.Lock()
        """Submissions go to the engines one after the other, each whole and in order, so that batches repeat."""

    async def sample(self, chunk: Sequence[Candidate]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        async with self._one:
            tokens = await self._generator.encode([it.problem.prompt for it in chunk])
            requests = [
                SampleRequest(slot, prompt_tokens, self._seeds(it.id))
                for slot, (it, prompt_tokens) in enumerate(zip(chunk, tokens, strict=True))
            ]
            async for group in self._generator.sample(requests):
                yield group

    async def verdicts(self, group: Group, candidate: Candidate) -> tuple[Verdict, ...]:
        return await verdicts_of(group, candidate.problem, self._scorers, self._aside, group.step)

    def _seeds(self, problem_id: str) -> tuple[int, ...]:
        return tuple(derive(self._config.seed, "prepare", problem_id, i) for i in range(self._config.samples))


def solution_reason(passes: int | None, detail: str) -> str:
    """Why a problem is left out whose solution came to this; empty where it passed."""
    if passes is None:
        return f"its tests can't be run: {detail}"
    return "" if passes else f"its own solution does not pass ({detail})"
