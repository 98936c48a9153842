"""verl 0.9: a reward function, and raypoly's objectives as advantage estimators.

    reward.custom_reward_function.path=pkg://raypoly.integrations.with_verl
    reward.custom_reward_function.name=compute_score
    algorithm.adv_estimator=raypoly_pkpo             # in RAYPOLY_OBJECTIVE: parameters as JSON, {"k": 4}

`import verl` registers the estimators by the entry point `verl.plugins`: those of objectives that need rewards alone,
since verl hands an estimator no labels. `ground_truth` is a problem's row or id (`one_response.py`).

verl has no word for a reward that is unknown: `compute_score` waits and asks again, then raises. Its manager
`rate_limited`, and `naive` with a `compute_score_timeout`, make 0 of an error or a timeout: use `naive` without one.
"""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from raypoly.algorithms.objectives import KNOWN, Objective, build
from raypoly.core.errors import Unknown
from raypoly.core.plugins import load_plugin
from raypoly.integrations.in_process import group_advantages
from raypoly.integrations.one_response import GroundTruth, statuses


def compute_score(
    data_source: str, solution_str: str, ground_truth: GroundTruth, extra_info: Any = None, **_: Any
) -> dict[str, Any]:
    """`score`, `acc` and `status` of one response. Raises `Unknown` after some tries without a verdict."""
    (status,) = statuses([(ground_truth, solution_str)])
    if status == "infra":
        raise Unknown(f"No verdict of a response to a problem of {data_source}: a sandbox failed, or its tests do.")
    return {"score": float(status == "passed"), "acc": status == "passed", "status": status}


def advantages(
    name: str, token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Any, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """verl's estimator of an objective: float [B, L] advantages, twice. `index`: each row's prompt, [B]."""
    objective: Objective = build(name, **json.loads(os.environ.get("RAYPOLY_OBJECTIVE", "{}")))
    groups: dict[Any, list[int]] = {}
    for place, prompt in enumerate(index):
        groups.setdefault(prompt, []).append(place)
    rewards, lengths = token_level_rewards.sum(dim=-1).double().cpu().numpy(), response_mask.sum(dim=-1).int().tolist()
    found = group_advantages(objective, rewards, groups.values(), lengths=lengths)
    scalar = torch.as_tensor(found, dtype=token_level_rewards.dtype, device=token_level_rewards.device)
    spread = scalar.unsqueeze(-1) * response_mask
    return spread, spread


def _by_rewards_alone(name: str) -> bool:
    kind: type[Objective] = load_plugin(KNOWN[name], {}, "objective")
    return kind.needs <= {"lengths"} and kind.loss is None and kind.scaffold is None and kind.reads_rewards


for _name in filter(_by_rewards_alone, KNOWN):
    register_adv_est(f"raypoly_{_name}")(partial(advantages, _name))
