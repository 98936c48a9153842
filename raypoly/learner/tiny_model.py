"""The tiny policy of the embedded default: a byte-level BPE and a Qwen3-architecture decoder below 1M parameters.

    tokenizer = build_tokenizer(texts)
    model = build_model(len(tokenizer), seed=0)
    save_folder(model, tokenizer, path)     # AutoModelForCausalLM, AutoTokenizer and vLLM open it

The head is untied: an engine that reloads weights may keep a stale head where embedding and head are one tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from raypoly.learner.supervised_examples import EOS, PAD

VOCABULARY = 480
CONTEXT = 256
"""Positions: prompt and response together."""


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of at most `VOCABULARY` tokens trained on `texts`; any text encodes and comes back exactly."""
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
    """The decoder with random fp32 weights drawn from `seed`; PyTorch's global generator is left as it was."""
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
    """Write model, tokenizer and generation config as an ordinary Hugging Face folder."""
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
