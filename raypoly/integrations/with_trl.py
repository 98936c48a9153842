"""TRL: rewards for `reward_funcs`, and a `GRPOTrainer` with any objective's advantages. For TRL 1.16.

    verifier = raypoly.Verifier("problems.jsonl")
    trainer = ObjectiveTrainer(
        objective=raypoly.objective("poly_epo", set_size=4),
        labels=labels_of(verifier),
        model=..., args=GRPOConfig(num_generations=8, ...), train_dataset=...,      # with a column problem_id
        reward_funcs=[rewards_of(verifier)],
    )

A verdict that is unknown is None to TRL, which leaves the completion out (advantage 0, not in the baseline); here it is
left out of its group's objective too. TRL's own trainer subtracts the group's mean from what a reward function gives,
with `scale_rewards="none"` too, so that only advantages with mean 0 a group could come in by that way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from raypoly.algorithms.objectives import Objective
from raypoly.core.errors import UsageError
from raypoly.core.values import Float64
from raypoly.integrations.in_process import Reward, Verifier, group_advantages
from raypoly.strategies.judge.structural import structural_labels

Labels = Callable[..., Sequence[int]]
"""Completions, and columns by name, to a strategy id (1 and more within a problem, 0 for none) each."""


def rewards_of(
    verifier: Verifier, column: str = "problem_id", reward: Any = "passed"
) -> Callable[..., list[float | None]]:
    """A reward function for `reward_funcs`. `column`: of the data set, with a problem's id."""

    def raypoly_reward(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        named: Reward = reward
        return verifier.rewards(_texts(completions), _column(columns, column), named)

    return raypoly_reward


def labels_of(verifier: Verifier, column: str = "problem_id") -> Labels:
    """Strategies by execution, for objectives that need labels. A completion without a program is of none (0)."""

    def raypoly_labels(completions: Sequence[Any], **columns: Any) -> list[int]:
        texts, ids, found = _texts(completions), _column(columns, column), [0] * len(completions)
        for name in dict.fromkeys(ids):
            places = [place for place, own in enumerate(ids) if own == name]
            labels = structural_labels(verifier.verdicts([texts[place] for place in places], name))
            for place, strategy in zip(places, labels.strategies if labels else (), strict=labels is not None):
                found[place] = strategy
        return found

    return raypoly_labels


class ObjectiveTrainer(GRPOTrainer):  # type: ignore[misc]
    """`GRPOTrainer` whose advantages are an objective's, exactly: neither centred nor scaled again."""

    def __init__(self, *args: Any, objective: Objective, labels: Labels | None = None, **kwargs: Any) -> None:
        """`labels`: for objectives that need them. Raises `UsageError` where they are missing."""
        if "labels" in objective.needs and labels is None:
            raise UsageError(f"{type(objective).__name__} needs labels: give labels=labels_of(verifier).")
        super().__init__(*args, **kwargs)
        objective.check(self.num_generations)
        self._objective, self._labels_of = objective, labels
        self._scored: tuple[Float64, list[int] | None] | None = None

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        per_function = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        weighted = (per_function * self.reward_weights.to(per_function.device)).nansum(dim=1)
        weighted[torch.isnan(per_function).all(dim=1)] = torch.nan
        labels = None
        if self._labels_of is not None:
            columns = {key: [row[key] for row in inputs] for key in inputs[0] if key not in ("prompt", "completion")}
            labels = gather_object(list(self._labels_of(completions, **columns)))
        self._scored = weighted.double().cpu().numpy(), labels
        return per_function

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        if self.model.training and self._scored is not None:
            own = output["advantages"]
            first = self.accelerator.process_index * len(own)
            rewards, labels = self._scored
            size = self.num_generations
            groups = (range(start, start + size) for start in range(0, len(rewards), size))
            found = group_advantages(self._objective, rewards, groups, labels)
            output["advantages"] = torch.as_tensor(found[first : first + len(own)], dtype=own.dtype, device=own.device)
        return output


def _texts(completions: Sequence[Any]) -> list[str]:
    return [given if isinstance(given, str) else given[-1]["content"] for given in completions]


def _column(columns: dict[str, Any], name: str) -> list[str]:
    if name not in columns:
        raise UsageError(f"The data set has no column {name}, which says each row's problem: {', '.join(columns)}.")
    return list(map(str, columns[name]))
