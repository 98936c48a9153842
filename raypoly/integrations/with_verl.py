"""verl 0.9: a reward function, and raypoly's objectives as advantage estimators.

    custom_reward_function.path=pkg://raypoly.integrations.with_verl custom_reward_function.name=compute_score
    algorithm.adv_estimator=raypoly_pkpo             # in RAYPOLY_OBJECTIVE: parameters as JSON, {"k": 4}

`import verl` registers the estimators by the entry point `verl.plugins`: those of objectives that need rewards alone,
since verl hands an estimator no labels. `ground_truth` is a problem's row (docs/problem-formats.md) as JSON, or the id
of one that the server at RAYPOLY_SERVE_URL has (`raypoly serve`); without a server sandboxes of this process score.

verl has no word for a reward that is unknown: `compute_score` waits and asks again, then raises, and never gives 0.
"""

from __future__ import annotations

import json
import os
from functools import cache, partial
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from raypoly.algorithms.objectives import KNOWN, Objective, build
from raypoly.core.errors import Unknown, UsageError
from raypoly.core.plugins import load_plugin
from raypoly.data.formats import problem_of
from raypoly.integrations.http_client import VerdictClient
from raypoly.integrations.in_process import Verifier, group_advantages
from raypoly.verifier.code_extraction import program_in

_TRIES = 3


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> dict[str, Any]:
    """`score` and `acc` of one response. Raises `Unknown` after some tries without a verdict."""
    for _attempt in range(_TRIES):
        status = _status(ground_truth, solution_str)
        if status != "infra":
            return {"score": float(status == "passed"), "acc": status == "passed", "status": status}
    raise Unknown(
        f"No verdict of a response to a problem of {data_source}: the sandbox failed, or its tests can't be run."
    )


def _status(ground_truth: Any, response: str) -> str:
    row = json.loads(ground_truth) if isinstance(ground_truth, str) and ground_truth[:1] == "{" else ground_truth
    if (url := os.environ.get("RAYPOLY_SERVE_URL")) is not None:
        named = {"problem_id": row} if isinstance(row, str) else {"problem": row}
        client = VerdictClient(url, os.environ.get("RAYPOLY_SERVE_TOKEN", ""))
        return str(client.verdicts([{**named, "response": response}])[0]["status"])
    if isinstance(row, str):
        raise UsageError(
            f"ground_truth {row!r} is an id, which only a server knows: set RAYPOLY_SERVE_URL, or give the row."
        )
    problem = problem_of(row)
    (verdict,) = _verifier().score([(problem, program_in(problem, response))])
    return verdict.status


@cache
def _verifier() -> Verifier:
    return Verifier([], workers=2, evidence=False)


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
