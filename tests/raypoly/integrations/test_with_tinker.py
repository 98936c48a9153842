"""A group's rollout by tinker-cookbook itself, with canned tokens; where tinker-cookbook 0.6.1 is installed."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from raypoly.core.errors import Unknown
from raypoly.integrations.one_response import GroundTruth
from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, RIGHT

pytest.importorskip("tinker_cookbook", reason="needs tinker-cookbook (uv pip install tinker-cookbook==0.6.1)")


class Characters:
    """A renderer whose tokens are characters."""

    def build_generation_prompt(self, messages: Any) -> Any:
        import tinker

        return tinker.ModelInput.from_ints([ord(it) for it in messages[0]["content"]])

    def get_stop_sequences(self) -> list[str]:
        return ["\0"]

    def parse_response(self, tokens: list[int]) -> Any:
        return {"role": "assistant", "content": "".join(map(chr, tokens))}, None


def test_a_group_is_scored_together_and_goes_where_one_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl import rollouts
    from tinker_cookbook.rl.rollout_strategy import RetryOnFailure

    from raypoly.integrations.with_tinker import TinkerGroup

    said = iter([RIGHT, "no", RIGHT] * 3)

    async def policy(observation: Any, stop: Any) -> Any:
        tokens = [ord(it) for it in next(said)]
        return TokensWithLogprobs(tokens=tokens, maybe_logprobs=[0.0] * len(tokens))

    def group(problem: GroundTruth) -> TinkerGroup:
        return TinkerGroup(problem, "Double n.", Characters(), 3)

    found = asyncio.run(rollouts.do_group_rollout(group(DOUBLE), policy))
    assert sorted(found.get_total_rewards()) == [0.0, 1.0, 1.0]
    assert sorted(it["passed"] for it in found.metrics_G) == [0.0, 1.0, 1.0]
    with pytest.raises(Unknown):
        asyncio.run(rollouts.do_group_rollout(group(BROKEN), policy))

    async def tolerant() -> Any:
        """As training with `rollout_error_tolerance=True` does."""

        async def sample(prompt: Any, **_: Any) -> Any:
            tokens = [ord(it) for it in RIGHT]
            one = SimpleNamespace(tokens=tokens, logprobs=[0.0] * len(tokens), stop_reason="stop", sequence_id="")
            return SimpleNamespace(sequences=[one], prompt_cache_hit_tokens=0)

        sampler = SimpleNamespace(sample=sample)
        call = rollouts.do_group_rollout_and_filter_constant_reward
        return await call(sampler, group(BROKEN), 100, 1.0, False, False, strategy=RetryOnFailure())

    assert asyncio.run(tolerant()) is None
    assert "Rollout error (Unknown), skipping group" in caplog.text
