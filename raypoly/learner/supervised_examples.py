"""Supervised examples for the tiny policy's start, as text and as tokens. No torch here: a data task imports it.

Like a base model they know many strategies, prefer one, and are often wrong. With `warm_start.planned` a share of the
prompts contain a method.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from raypoly.core.config import WarmStartConfig
from raypoly.core.seeds import derive
from raypoly.core.values import Int32
from raypoly.data.puzzles import puzzle_by_words
from raypoly.data.puzzles.puzzle_language import Puzzle, method
from raypoly.data.puzzles.puzzle_solutions import STRATEGIES, render_mistake, render_solution

EOS, PAD = "<|eos|>", "<|pad|>"
FREQUENCIES = {
    "for": 0.56,
    "while": 0.08,
    "recursion": 0.08,
    "comprehension": 0.12,
    "higher_order": 0.08,
    "reduce": 0.08,
}
"""How often each strategy is drawn."""

RESPONSE_TOKENS = 76
"""Longest response, without the end-of-sequence token."""
WIDTH = 128
"""Tokens of an encoded row: the longest prompt, with a method, and response fit."""
IGNORED = -100
"""The label of a position that has no loss (PyTorch's convention)."""


@dataclass(frozen=True)
class Example:
    prompt: str
    response: str


def tokenizer_texts(puzzles: Sequence[Puzzle], planned: bool = False) -> list[str]:
    """The tokenizer's training texts: each prompt with a solution by each strategy; if `planned`, with methods too."""
    seeds = [(it, strategy, derive("tokenizer", it.words, strategy)) for it in puzzles for strategy in STRATEGIES]
    texts = [it.prompt + render_solution(it, strategy, random.Random(seed)) for it, strategy, seed in seeds]
    if planned:
        texts += [_planned_prompt(it, strategy, random.Random(seed)) for it, strategy, seed in seeds]
    return texts


def make_example(puzzles: Sequence[Puzzle], config: WarmStartConfig, index: int) -> Example:
    """Example `index` of the supervised stream. `config.planned` changes its prompt, and nothing else."""
    rng = random.Random(derive(config.seed, "warm start example", index))
    puzzle = rng.choice(puzzles)
    strategy = rng.choices(STRATEGIES, weights=[FREQUENCIES[name] for name in STRATEGIES])[0]
    write = render_mistake if rng.random() < config.wrong_fraction else render_solution
    response = write(puzzle, strategy, rng)
    own = random.Random(derive(config.seed, "warm start method", index))
    prompt = _planned_prompt(puzzle, strategy, own) if own.random() < config.planned else puzzle.prompt
    return Example(prompt, response)


def _planned_prompt(puzzle: Puzzle, strategy: str, rng: random.Random) -> str:
    """The prompt after a method, as scaffolds write an instruction where responses go on with the prompt's code."""
    return f"# Use this method: {method(puzzle, strategy, rng)}\n{puzzle.prompt}"


def encode(tokenizer: Tokenizer, examples: Sequence[Example], width: int = WIDTH) -> tuple[Int32, Int32]:
    """Token ids and labels, int32 [B, width], right-padded; labels are `IGNORED` outside response and end-of-sequence.

    Raises `ValueError` where a prompt leaves a response no room.
    """
    eos, pad = tokenizer.encode(EOS).ids[0], tokenizer.encode(PAD).ids[0]
    heads = [row.ids for row in tokenizer.encode_batch([example.prompt for example in examples])]
    bodies = [row.ids for row in tokenizer.encode_batch([example.response for example in examples])]
    tails = [[*ids[:RESPONSE_TOKENS], eos] for ids in bodies]
    ids_BL = np.full((len(heads), width), pad, np.int32)
    labels_BL = np.full_like(ids_BL, IGNORED)
    for row, (head, tail) in enumerate(zip(heads, tails, strict=True)):
        if len(head) + len(tail) > width:
            raise ValueError(f"an example of {len(head) + len(tail)} tokens does not fit a row of {width}")
        ids_BL[row, : len(head) + len(tail)] = head + tail
        labels_BL[row, len(head) : len(head) + len(tail)] = tail
    return ids_BL, labels_BL


@dataclass(frozen=True)
class Recipe:
    """All that decides the supervised stream. It travels to other processes."""

    config: WarmStartConfig
    words: tuple[str, ...]
    """The training puzzles, by what they ask."""
    tokenizer: str
    """The tokenizer as JSON."""

    def write(self, block: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Examples by index (`id`, int64 [B]) to `id`, `ids` and `labels`, the last two int32 [B, L]."""
        puzzles = [puzzle for words in self.words if (puzzle := puzzle_by_words(words)) is not None]
        examples = [make_example(puzzles, self.config, int(index)) for index in block["id"]]
        ids_BL, labels_BL = encode(Tokenizer.from_str(self.tokenizer), examples)
        return {"id": block["id"], "ids": ids_BL, "labels": labels_BL}
