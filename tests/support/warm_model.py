"""A tiny policy with a short supervised training, from which short runs start."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch

from raypoly.core.caches import cache_root
from raypoly.core.config import ProblemsConfig, WarmStartConfig
from raypoly.data import build_problem_set
from raypoly.data.puzzles import puzzle_of
from raypoly.learner.supervised_examples import encode, make_example, tokenizer_texts
from raypoly.learner.tiny_model import SupervisedTrainer, build_model, build_tokenizer, save_folder


def warm_model(folder: Path, steps: int = 110) -> Path:
    """Train a tiny model for some 30 seconds and write its folder. Most of its samples parse, and some are right."""
    torch.set_num_threads(1)
    config = WarmStartConfig(steps=steps, batch_size=64)
    problems = build_problem_set(ProblemsConfig())
    puzzles = [puzzle_of(problem) for problem in problems.splits["train"]]
    tokenizer = build_tokenizer(tokenizer_texts(puzzles))
    model = build_model(len(tokenizer), seed=0)
    trainer = SupervisedTrainer(model, config)
    for step in range(steps):
        examples = [make_example(puzzles, config, step * 64 + i) for i in range(64)]
        trainer.step(*encode(tokenizer.backend_tokenizer, examples))
    save_folder(model, tokenizer, folder)
    return folder


def cached_warm_model() -> Path:
    """The folder of such a model, made once for each user."""
    folder = cache_root() / "chaos-model-1"
    if not folder.is_dir():
        aside = folder.with_name(f".{folder.name}-{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        warm_model(aside)
        aside.rename(folder)
    return folder
