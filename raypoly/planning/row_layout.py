"""How a model's rows will go through the learner, as its `config.json` tells: packed, or padded to one length.

    layout = row_layout("Qwen/Qwen3.5-4B")       # "padded"; None: unknown before the model loads
    describe_layout(config, layout)

The learner itself compares both ways when it loads the model (`raypoly.learner.policy_model`), whatever is said here.
"""

from __future__ import annotations

from typing import Literal

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.planning.model_shape import config_of, shape_of
from raypoly.rollouts import scaffolds
from raypoly.rollouts.scaffolds.planned_prompts import distinct_prompts

RowLayout = Literal["packed", "padded"]

_PACKED = {"full_attention", "sliding_attention"}
"""Kinds of layers (`layer_types`) that packed attention computes."""


def row_layout(path: str | None) -> RowLayout | None:
    """Of the model at `model.path`; None where nothing tells. Raises `UsageError` for a mixture of experts."""
    found = (config_of(path) or {}) if path is not None else {}
    values = {**found, **(found.get("text_config") or {})}
    if any(name.endswith("_experts") and isinstance(count, int) and count > 1 for name, count in values.items()):
        raise UsageError(
            f"model.path={path} is a mixture of experts, whose routing and balancing loss the learner does not train: "
            "set model.path to a dense model."
        )
    if values.get("attn_logit_softcapping") is not None:
        return "padded"
    kinds = values.get("layer_types")
    if kinds is not None:
        return "packed" if set(kinds) <= _PACKED else "padded"
    return None if shape_of(path) is None else "packed"


def describe_layout(config: Config, layout: RowLayout | None) -> str:
    """One line of `--dry-run`, with what padding costs."""
    if layout is None:
        return "rows: packed or padded, unknown before the model loads"
    if layout == "packed":
        return "rows: packed, prompts shared"
    prompt, response = config.generator.max_prompt_tokens, config.generator.max_tokens
    rollouts = config.train.rollouts
    prompts = distinct_prompts(scaffolds.of_run(config), rollouts)
    times = rollouts * (prompt + response) / (prompts * prompt + rollouts * response)
    return (
        f"rows: padded to one length, prompt computed for each response: about {times:.1f} times the tokens of packed "
        "rows with prompts and responses at their limits, more where lengths differ"
    )
