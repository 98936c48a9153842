"""The parameters that all losses share; each adds its own in a subclass."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from raypoly.algorithms.losses.aggregation import Aggregation

Level = Literal["token", "sequence"]
Estimator = Literal["k1", "k2", "k3"]


class LossConfig(BaseModel):
    """docs/losses.md has the formulas."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    aggregation: Aggregation = Field(
        "seq_mean_token_sum_norm",
        description="How token losses become one number (raypoly/algorithms/losses/aggregation.py).",
    )
    importance_cap: float | None = Field(
        None,
        gt=0,
        description="Weigh by the learner/sampler probability ratio, truncated here. Default: no weight; 2 where "
        "model.dtype=bfloat16 and the loss takes no ratio itself.",
    )
    importance_level: Level = Field(
        "token", description="The ratio of `importance_cap`: each token's own, or the product over its response."
    )
    mask_low: float | None = Field(
        None, ge=0, description="Leave out what has a learner/sampler ratio below this; unset: no bound."
    )
    mask_high: float | None = Field(
        None, gt=0, description="Leave out what has a learner/sampler ratio above this; unset: no bound."
    )
    mask_level: Level = Field(
        "token", description="What is left out: tokens by their own ratio, or responses by their geometric mean."
    )
    kl_coefficient: float = Field(
        0.0, ge=0, description="Weight of the KL to the frozen starting model, per token; above 0 keeps a copy of it."
    )
    kl: Estimator = Field(
        "k3", description="Estimator of that KL: `k1` and `k2` have its gradient, `k3` (GRPO) has that of the reverse."
    )
    kl_in_reward: float = Field(
        0.0,
        ge=0,
        description="Weight of the KL to the frozen starting model inside the reward: each token's advantage has it "
        "of all tokens from there on taken off (docs/credit.md). Not beside `kl_coefficient`.",
    )
    entropy_coefficient: float = Field(0.0, ge=0, description="Weight of the entropy bonus, per token.")

    @field_validator("kl_in_reward")
    @classmethod
    def _one_kl(cls, value: float, info: ValidationInfo) -> float:
        if value and info.data.get("kl_coefficient"):
            raise ValueError("the loss has a KL of its own, kl_coefficient: set one of them to 0")
        return value

    @field_validator("mask_high")
    @classmethod
    def _above_mask_low(cls, value: float | None, info: ValidationInfo) -> float | None:
        low = info.data.get("mask_low")
        if value is not None and low is not None and value <= low:
            raise ValueError(f"must be above mask_low={low:g}")
        return value
