"""One optimizer step of the tiny policy's supervised start, on encoded examples."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from raypoly.core.config import WarmStartConfig
from raypoly.core.values import Int32
from raypoly.learner.learning_rate import learning_rate
from raypoly.learner.supervised_examples import IGNORED


def supervised_loss(model: Qwen3ForCausalLM, ids_BL: Tensor, labels_BL: Tensor) -> Tensor:
    """Mean cross-entropy, nats, over the labelled tokens."""
    logits_BLV = model(input_ids=ids_BL).logits[:, :-1]
    targets = labels_BL[:, 1:]
    return torch.nn.functional.cross_entropy(logits_BLV.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


class SupervisedTrainer:
    """AdamW, one batch a step. The learning rate decays by a cosine over all steps, and rises over the first tenth of
    them, at most 20."""

    def __init__(self, model: Qwen3ForCausalLM, config: WarmStartConfig) -> None:
        self.model = model.train()
        self.config = config
        self.done = 0
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.0)

    def step(self, ids_BL: Int32, labels_BL: Int32) -> float:
        """One update on int32 [B, L] arrays; returns the loss before it. Columns that are all padding cost nothing."""
        used = int((labels_BL != IGNORED).any(axis=0).nonzero()[0].max()) + 1
        ids_BL, labels_BL = ids_BL[:, :used], labels_BL[:, :used]
        steps = self.config.steps
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.done, self.config.lr, "cosine", min(20, steps // 10), begin=0, end=steps)
        ids, labels = (torch.from_numpy(array.astype(np.int64)) for array in (ids_BL, labels_BL))
        loss = supervised_loss(self.model, ids, labels)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.done += 1
        return float(loss.detach())
