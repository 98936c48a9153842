"""The environment that skyrl-gym makes by its id; where skyrl-gym 0.4.0 is installed."""

import json

import pytest

from raypoly.core.errors import Unknown, UsageError
from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, RIGHT

skyrl_gym = pytest.importorskip("skyrl_gym", reason="needs skyrl-gym (uv pip install skyrl-gym==0.4.0)")


def test_one_step_of_the_registered_environment() -> None:
    import raypoly.integrations.with_skyrl  # noqa: F401  registers it

    for response, reward in ((RIGHT, 1.0), ("no", 0.0)):
        environment = skyrl_gym.make("raypoly", env_config={}, extras={"reward_spec": {"ground_truth": DOUBLE}})
        assert environment.init([]) == ([], {})
        step = environment.step(response)
        assert (step["reward"], step["done"], step["observations"]) == (reward, True, [])
    with pytest.raises(Unknown):
        skyrl_gym.make("raypoly", extras={"reward_spec": {"ground_truth": json.dumps(BROKEN)}}).step(RIGHT)
    with pytest.raises(UsageError, match=r"reward_spec\.ground_truth"):
        skyrl_gym.make("raypoly", env_config={}, extras={})
