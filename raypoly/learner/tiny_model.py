"""Tiny policy of the embedded default: a byte-level BPE, a Qwen3 decoder below 1M parameters, its supervised start.

    tokenizer = build_tokenizer(texts)
    model = build_model(len(tokenizer), seed=0)
    save_folder(model, tokenizer, path)     # AutoModelForCausalLM, AutoTokenizer and vLLM open it

The head is untied: an engine that reloads weights may keep a stale head where embedding and head are one tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from raypoly.core.config import WarmStartConfig
from raypoly.core.values import Int32
from raypoly.learner.learning_rate import learning_rate
from raypoly.learner.supervised_examples import EOS, IGNORED, PAD

VOCABULARY = 480
CONTEXT = 1024
"""Positions: prompt and response together."""


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A BPE of at most `VOCABULARY` tokens trained on `texts`; any text encodes and comes back exactly."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[EOS, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return tokenizer_from_json(bpe.to_str())


def tokenizer_from_json(text: str) -> PreTrainedTokenizerFast:
    """The tokenizer whose `backend_tokenizer.to_str()` is `text`."""
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(text),
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def build_model(vocabulary: int, seed: int) -> Qwen3ForCausalLM:
    """The decoder with float32 weights drawn from `seed`; PyTorch's global generator is left as it was."""
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # vLLM's CPU attention has no kernel for 24
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=1,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=0, pad_token_id=1, do_sample=True)
    return model


def save_folder(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, path: Path) -> None:
    """Write an ordinary Hugging Face folder."""
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def supervised_loss(model: Qwen3ForCausalLM, ids_BL: Tensor, labels_BL: Tensor) -> Tensor:
    """Mean cross-entropy, nats, over the labelled tokens."""
    logits_BLV = model(input_ids=ids_BL).logits[:, :-1]
    targets = labels_BL[:, 1:]
    return torch.nn.functional.cross_entropy(logits_BLV.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


class SupervisedTrainer:
    """AdamW, one batch a step. The rate rises over a tenth of the steps, at most 20, and decays by a cosine."""

    def __init__(self, model: Qwen3ForCausalLM, config: WarmStartConfig) -> None:
        self.model = model.train()
        self.config = config
        self.done = 0
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.0, fused=True)

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
