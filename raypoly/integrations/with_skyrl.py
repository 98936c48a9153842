"""SkyRL (skyrl-gym 0.4): the environment `raypoly`, of one turn.

    import raypoly.integrations.with_skyrl          # in the task that runs the experiment: registers it

A row has `env_class="raypoly"` and `reward_spec={"ground_truth": row or id}` (`one_response.py`). SkyRL has no word for
a reward that is unknown: `step` asks again, then raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from skyrl_gym.envs.registration import register, registry

from raypoly.core.errors import UsageError
from raypoly.integrations.one_response import known_rewards


class SkyRLEnv(BaseTextEnv):  # type: ignore[misc]
    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        try:
            self.ground_truth = (extras or {})["reward_spec"]["ground_truth"]
        except KeyError as error:
            raise UsageError("A row needs reward_spec.ground_truth: a problem's row as JSON, or its id.") from error

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """The reward of a response, 1.0 or 0.0, and the end. Raises `Unknown`."""
        (reward,) = known_rewards([(self.ground_truth, action)])
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata={})


if "raypoly" not in registry:
    register("raypoly", "raypoly.integrations.with_skyrl:SkyRLEnv")
