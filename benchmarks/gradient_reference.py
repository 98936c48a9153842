"""The learner's gradient against one that shares nothing with it: float32, a row at a time, transformers' own attention
and logits, the loss written out.

    reference = GradientReference.of(folder, rows, device)
    errors = reference.compare(folder, train, model)       # of a new learner's first update
    errors.fault                                           # a sentence if its gradient is wrong, else None

The learner's gradient is what AdamW got: its first moment, which after one step is (1 - beta) times the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from benchmarks import plain  # noqa: F401  (a stand-in for pydantic, before raypoly asks for it)
from raypoly.algorithms.losses import build
from raypoly.algorithms.losses.aggregation import Normalisers
from raypoly.core.config import ModelConfig, TrainConfig
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.training_rows import TrainingRow

BOUNDS = {"gradient_error": 0.1, "norm_error": 0.02, "worst_tensor_error": 0.15, "logp_error": 0.05}
"""Four times or more what bf16 alone gives at Qwen3-4B's width, measured on a CPU: 0.019, 0.002, 0.031 and 0.012 (four
layers, random weights, a vocabulary of 8,192)."""


@dataclass(frozen=True)
class GradientErrors:
    """Relative ones are |learner - reference| / |reference| by Euclidean norms."""

    gradient_error: float
    """Relative, of all tensors as one."""
    norm_error: float
    """Relative, of the gradient's norm: a wrong scale."""
    worst_tensor_error: float
    """Relative, the largest of `tensor_errors`."""
    worst_tensor: str
    logp_error: float
    """Mean |difference| of a token's log-probability, in nats."""
    tensor_errors: Mapping[str, float]

    @property
    def fault(self) -> str | None:
        """What is out of bounds; NaN is."""
        wrong = [
            f"{key.replace('_', ' ')} {getattr(self, key):.3g} (bound {bound})"
            for key, bound in BOUNDS.items()
            if not getattr(self, key) <= bound
        ]
        if not wrong:
            return None
        return f"the learner's gradient is not the float32 reference's: {', '.join(wrong)}; worst: {self.worst_tensor}."


@dataclass(frozen=True)
class GradientReference:
    """The gradient of one small update, by the reference."""

    rows: Sequence[TrainingRow]
    """With the reference's log-probabilities as the sampler's, for the learner's own statistics."""
    normalisers: Normalisers
    gradient: Mapping[str, Tensor]
    """By name, on the host."""

    @classmethod
    def of(cls, folder: Path, rows: Sequence[TrainingRow], device: torch.device) -> GradientReference:
        """Of the policy gradient, -A log pi, summed over tokens and divided by rows and the longest response."""
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").to(
            device
        )
        longest = max(len(row.tokens) for row in rows)
        found = []
        for row in rows:
            ids = torch.from_numpy(np.concatenate([row.prompt_tokens, row.tokens]).astype(np.int64)).to(device)
            logits_TV = model(ids[None], use_cache=False).logits[0, len(row.prompt_tokens) - 1 : -1]
            logp_T = logits_TV.log_softmax(-1).gather(1, ids[len(row.prompt_tokens) :, None]).squeeze(1)
            (-row.advantage * logp_T.sum() / (len(rows) * longest)).backward()
            found.append(replace(row, sampler_logprobs=logp_T.detach().cpu().numpy()))
        gradient = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
        return cls(found, Normalisers(prompts=len(rows), rollouts=1, t_max=longest), gradient)

    def compare(self, folder: Path, train: TrainConfig, model: ModelConfig) -> GradientErrors:
        """Make the same update with a learner of the same folder; `train` must not clip."""
        learner = PolicyLearner(folder, train, build("policy_gradient"), 1.0, model)
        learner.begin(0, self.normalisers)
        learner.accumulate(self.rows)
        stats = learner.apply()
        moments = learner.snapshot().moments
        errors, squares = {}, torch.zeros(3, dtype=torch.float64)
        for name, want in self.gradient.items():
            got = moments[f"{name}|exp_avg"] / (1 - train.betas[0])
            norms = [torch.linalg.vector_norm(x, dtype=torch.float64) for x in (got, want, got - want)]
            errors[name] = float(norms[2] / norms[1])
            squares += torch.stack(norms).square()
        norm, reference, apart = squares.sqrt().tolist()
        worst = max(errors, key=lambda name: errors[name])
        return GradientErrors(
            gradient_error=apart / reference,
            norm_error=abs(norm / reference - 1),
            worst_tensor_error=errors[worst],
            worst_tensor=worst,
            logp_error=stats.measured.mismatch_mean,
            tensor_errors=errors,
        )
