"""verl finds the estimators by itself and scores by its own reward manager; where verl 0.9.1 is installed."""

import asyncio
import json
from importlib.metadata import entry_points
from typing import Any

import pytest

from raypoly.core.errors import Unknown
from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, RIGHT


def test_verl_is_told_where_the_estimators_are() -> None:
    (found,) = (entry for entry in entry_points(group="verl.plugins") if entry.name == "raypoly")
    assert found.value == "raypoly.integrations.with_verl"


def test_importing_verl_registers_the_estimators_and_its_rewards_are_never_0_for_unknown() -> None:
    verl = pytest.importorskip("verl", reason="needs verl (uv pip install verl==0.9.1)")
    import torch
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    from raypoly.integrations.with_verl import compute_score

    assert verl.__version__.startswith("0.9")
    rewards, mask = torch.zeros(8, 5), torch.ones(8, 5)
    rewards[[0, 1, 5], 4] = 1
    index = ["a", "b"] * 4
    ours, theirs = (
        get_adv_estimator_fn(name)(token_level_rewards=rewards.clone(), response_mask=mask, index=index, config=None)[0]
        for name in ("raypoly_rloo", "rloo")
    )
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert compute_score("x", RIGHT, json.dumps(DOUBLE))["score"] == 1.0
    assert compute_score("x", "no", DOUBLE)["score"] == 0.0
    with pytest.raises(Unknown):
        compute_score("x", RIGHT, BROKEN)


class Characters:
    """A tokenizer whose tokens are characters."""

    def decode(self, tokens: Any, **_: Any) -> str:
        return "".join(map(chr, tokens.tolist()))


def batch_of(rows: list[tuple[dict[str, Any], str]]) -> Any:
    """verl's batch of responses to problems, padded on the right."""
    import numpy as np
    import torch
    from verl import DataProto

    width = max(len(text) for _, text in rows)
    responses = torch.tensor([[ord(it) for it in text.ljust(width, "\0")] for _, text in rows])
    mask = torch.tensor([[1] * (4 + len(text)) + [0] * (width - len(text)) for _, text in rows])
    tensors = {"prompts": torch.full((len(rows), 4), 65), "responses": responses, "attention_mask": mask}
    truths = [{"ground_truth": json.dumps(problem)} for problem, _ in rows]
    columns = {"reward_model": truths, "data_source": ["raypoly"] * len(rows), "extra_info": [{} for _ in rows]}
    return DataProto.from_dict(tensors, {key: np.array(values, object) for key, values in columns.items()})


def test_verls_reward_managers_score_64_responses_and_stop_at_an_unknown_one() -> None:
    pytest.importorskip("verl", reason="needs verl (uv pip install verl==0.9.1)")
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import get_custom_reward_fn, load_reward_manager
    from verl.workers.reward_manager.naive import NaiveRewardManager

    named = {"path": "pkg://raypoly.integrations.with_verl", "name": "compute_score"}
    manager = {"source": "register", "name": "naive"}
    config = OmegaConf.create({"reward": {"custom_reward_function": named, "reward_manager": manager}})
    texts = [f"```python\ndef f(n):\n    return {2 + place % 2} * n  # {place}\n```" for place in range(64)]
    good = batch_of([(DOUBLE, text) for text in texts])
    bad = batch_of([(DOUBLE, text) for text in texts[:63]] + [(BROKEN, RIGHT)])
    expected = [float(place % 2 == 0) for place in range(64)]

    naive = NaiveRewardManager(Characters(), 0, get_custom_reward_fn(config))
    found = naive(good, return_dict=True)
    assert found["reward_tensor"].sum(dim=-1).tolist() == found["reward_extra_info"]["acc"] == expected
    with pytest.raises(Unknown):
        naive(bad)

    async def by_loop(batch: Any) -> list[dict[str, Any]]:
        """As verl's `RewardLoopWorker` does for a batch."""
        loop_manager = load_reward_manager(config, Characters())
        return await asyncio.gather(*(loop_manager.run_single(batch[place : place + 1]) for place in range(64)))

    assert [it["reward_score"] for it in asyncio.run(by_loop(good))] == expected
    with pytest.raises(Unknown):
        asyncio.run(by_loop(bad))
