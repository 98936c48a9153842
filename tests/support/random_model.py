"""A small random Qwen3 policy with its tokenizer. `tests.support.warm_model` has one that was trained a little."""

from pathlib import Path

import torch

from raypoly.learner.tiny_model import build_model, build_tokenizer, save_folder

TEXTS = ["def f(n):\n s = 0\n for x in range(1, n + 1):\n  s += x\n return s", "# sum of squares from 1 to n"]


def random_model(folder: Path, tied: bool = False) -> Path:
    """Write a Hugging Face folder. The head is scaled up, so that samples are not uniform. `tied`: it is the
    embedding."""
    tokenizer = build_tokenizer(TEXTS)
    model = build_model(len(tokenizer), seed=0)
    with torch.no_grad():
        model.lm_head.weight.mul_(10)
    if tied:
        model.config.tie_word_embeddings = True
        model.tie_weights()
    save_folder(model, tokenizer, folder)
    return folder
