"""slime: rewards, and an objective's advantages as rewards.

    --custom-rm-path raypoly.integrations.with_slime.custom_rm
    --custom-reward-post-process-path raypoly.integrations.with_slime.reward_post_process

`--label-key` names a column with a problem's row or id (`one_response.py`). RAYPOLY_OBJECTIVE is an objective and its
parameters as JSON, {"name": "pkpo", "k": 4}; without it `grpo`, the reward minus the mean of its group.

A sample whose verdict is unknown has `remove_sample` and the reward NaN: it is not trained on, and its group's
advantages go without it. slime's own post-processing can't do that, so without ours `custom_rm` raises.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any

import numpy as np

from raypoly.algorithms.objectives import build
from raypoly.core.errors import Unknown, UsageError
from raypoly.integrations.in_process import group_advantages
from raypoly.integrations.one_response import rewards_async


async def custom_rm(args: Any, sample: Any, **_: Any) -> float | list[float]:
    """1.0, 0.0 or NaN (unknown) of a `Sample`; of a list of them a list."""
    samples = sample if isinstance(sample, list) else [sample]
    found = await rewards_async([(each.label, each.response) for each in samples])
    if None in found and not args.custom_reward_post_process_path:
        raise Unknown("A verdict is unknown: give --custom-reward-post-process-path, which leaves its sample out.")
    for each, reward in zip(samples, found, strict=True):
        each.remove_sample = each.remove_sample or reward is None
    values = [math.nan if reward is None else reward for reward in found]
    return values if isinstance(sample, list) else values[0]


def reward_post_process(args: Any, samples: list[Any]) -> tuple[list[float], list[float]]:
    """Rewards (NaN: unknown) and advantages, [B] each. Raises `UsageError` for an objective that needs labels."""
    objective = build(**json.loads(os.environ.get("RAYPOLY_OBJECTIVE", '{"name": "grpo"}')))
    if not objective.needs <= {"lengths"}:
        raise UsageError(f"{type(objective).__name__} needs {', '.join(objective.needs)}, which slime does not have.")
    groups: dict[Any, list[int]] = {}
    for place, sample in enumerate(samples):
        groups.setdefault(sample.group_index, []).append(place)
    rewards = np.array([sample.get_reward_value(args) for sample in samples], np.float64)
    lengths = [sample.response_length for sample in samples]
    return rewards.tolist(), group_advantages(objective, rewards, groups.values(), lengths=lengths).tolist()
