"""A group's rollout by tinker-cookbook itself, with canned tokens; where tinker-cookbook 0.6.1 is installed."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from raypoly.core.errors import Unknown
from raypoly.integrations.one_response import GroundTruth
from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, RIGHT

tinker = pytest.importorskip("tinker", reason="needs tinker-cookbook (uv pip install tinker-cookbook==0.6.1)")


class Characters:
    """A renderer whose tokens are characters."""

    def build_generation_prompt(self, messages: Any) -> Any:
        return tinker.ModelInput.from_ints([ord(it) for it in messages[0]["content"]])

    def get_stop_sequences(self) -> list[str]:
        return ["\0"]

    def parse_response(self, tokens: list[int]) -> Any:
        return {"role": "assistant", "content": "".join(map(chr, tokens))}, None


def test_a_group_is_scored_together_and_goes_where_one_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    rollouts = pytest.importorskip("tinker_cookbook.rl.rollouts", reason="needs tinker-cookbook")
    from tinker_cookbook.rl.rollout_strategy import rollout_strategy_from_config

    from raypoly.integrations.with_tinker import TinkerGroup

    said = iter([RIGHT, "no", RIGHT] * 3)

    async def sample(prompt: Any, **_: Any) -> Any:
        tokens = [ord(it) for it in next(said)]
        one = SimpleNamespace(tokens=tokens, logprobs=[0.0] * len(tokens), stop_reason="stop", sequence_id="")
        return SimpleNamespace(sequences=[one], prompt_cache_hit_tokens=0)

    def rollout(problem: GroundTruth, tolerance: bool) -> Any:
        group, strategy = TinkerGroup(problem, "Double n.", Characters(), 3), rollout_strategy_from_config(tolerance)
        play = rollouts.do_group_rollout_and_filter_constant_reward
        return asyncio.run(play(SimpleNamespace(sample=sample), group, 100, 1.0, False, strategy=strategy))

    found = rollout(DOUBLE, tolerance=False)
    assert sorted(found.get_total_rewards()) == sorted(it["passed"] for it in found.metrics_G) == [0.0, 1.0, 1.0]
    with pytest.raises(Unknown):
        rollout(BROKEN, tolerance=False)
    assert rollout(BROKEN, tolerance=True) is None
    assert "Rollout error (Unknown), skipping group" in caplog.text
