"""tinker-cookbook 0.6: a group of one problem, for `RLDataset.get_batch`.

    TinkerGroup(problem, prompt, renderer, size=8)          # `problem`: a row or an id (`one_response.py`)

Where a verdict is unknown `compute_group_rewards` raises: with `rollout_error_tolerance=True` training goes on without
the group, else the run ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tinker
from tinker_cookbook.renderers import Renderer, get_text_content
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, StepResult, Trajectory

from raypoly.integrations.one_response import GroundTruth, known_rewards_async


class TinkerEnv(Env):  # type: ignore[misc]
    """One turn, without a reward of its own."""

    def __init__(self, prompt: str, renderer: Renderer) -> None:
        self._prompt, self._renderer = prompt, renderer

    async def initial_observation(self) -> tuple[tinker.ModelInput, Any]:
        messages = [{"role": "user", "content": self._prompt}]
        return self._renderer.build_generation_prompt(messages), self._renderer.get_stop_sequences()

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        return StepResult(0.0, True, tinker.ModelInput.empty(), self._renderer.get_stop_sequences())


@dataclass(frozen=True)
class TinkerGroup(EnvGroupBuilder):  # type: ignore[misc]
    problem: GroundTruth
    prompt: str
    renderer: Renderer
    size: int
    """Responses."""

    async def make_envs(self) -> Sequence[Env]:
        return [TinkerEnv(self.prompt, self.renderer) for _ in range(self.size)]

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, dict[str, float | int]]]:
        """1.0 or 0.0 and a metric for each trajectory. Raises `Unknown` where one has no verdict."""
        found = await known_rewards_async([(self.problem, self._response(each)) for each in trajectory_group])
        return [(reward, {"passed": reward}) for reward in found]

    def logging_tags(self) -> list[str]:
        return ["raypoly"]

    def _response(self, trajectory: Trajectory) -> str:
        message, _ = self.renderer.parse_response(trajectory.transitions[-1].ac.tokens)
        return str(get_text_content(message))
