"""verl finds the estimators by itself and scores by its own reward manager; where verl 0.9.1 is installed."""

import json
from importlib.metadata import entry_points

import pytest

from tests.raypoly.integrations.test_in_process import BROKEN, DOUBLE, RIGHT


def test_verl_is_told_where_the_estimators_are() -> None:
    (found,) = (entry for entry in entry_points(group="verl.plugins") if entry.name == "raypoly")
    assert found.value == "raypoly.integrations.with_verl"


def test_importing_verl_registers_the_estimators_and_its_rewards_are_never_0_for_unknown() -> None:
    verl = pytest.importorskip("verl", reason="needs verl (uv pip install verl==0.9.1)")
    import torch
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    from raypoly.core.errors import Unknown
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
