"""How rows are packed into micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from raypoly.policy.segments import Segments
from raypoly.policy.training_rows import TrainingRow
from raypoly.values import Int32


@dataclass(frozen=True)
class MicroBatch:
    """B rows, one behind the other, a prompt that neighbours share once: S tokens, T of them in responses."""

    input_ids: torch.Tensor
    """int64 [1, S]."""
    positions: torch.Tensor
    """int64 [1, S]: each token's place in its own row."""
    segments: Segments
    """Prompts and responses, as they lie in S."""
    predicts: torch.Tensor
    """int64 [T]: places in S whose output predicts a response token."""
    targets: torch.Tensor
    """int64 [T]."""
    sampler_logprobs: torch.Tensor
    """float32 [T]."""
    row_of: torch.Tensor
    """int64 [T]: the row of each response token."""
    advantages: torch.Tensor
    """float32 [B]."""
    lengths: tuple[int, ...]
    """Response tokens of each row."""


def pack(rows: Sequence[TrainingRow]) -> MicroBatch:
    """One micro-batch of these rows, in their order."""
    tokens: list[Int32] = []
    prompts: list[int | None] = []
    positions, predicts = [], []
    used = prompt = 0  # tokens so far; the segment that is the current prompt
    last = 0  # the place of its last token, which predicts the first one of each response
    for i, row in enumerate(rows):
        if i == 0 or not _share_prompt(rows[i - 1], row):
            prompt, used = len(tokens), used + len(row.prompt_tokens)
            last = used - 1
            tokens.append(row.prompt_tokens)
            prompts.append(None)
            positions.append(np.arange(len(row.prompt_tokens)))
        predicts.append(np.concatenate([[last], np.arange(used, used + len(row.tokens))])[: len(row.tokens)])
        used += len(row.tokens)
        tokens.append(row.tokens)
        prompts.append(prompt)
        positions.append(len(row.prompt_tokens) + np.arange(len(row.tokens)))
    lengths = tuple(len(row.tokens) for row in rows)
    return MicroBatch(
        input_ids=torch.from_numpy(np.concatenate(tokens).astype(np.int64))[None],
        positions=torch.from_numpy(np.concatenate(positions))[None],
        segments=Segments.of([len(part) for part in tokens], prompts),
        predicts=torch.from_numpy(np.concatenate(predicts)),
        targets=torch.from_numpy(np.concatenate([row.tokens for row in rows]).astype(np.int64)),
        sampler_logprobs=torch.from_numpy(np.concatenate([row.sampler_logprobs for row in rows])),
        row_of=torch.from_numpy(np.repeat(np.arange(len(rows)), lengths)),
        advantages=torch.tensor([row.advantage for row in rows], dtype=torch.float32),
        lengths=lengths,
    )


def _share_prompt(row: TrainingRow, other: TrainingRow) -> bool:
    return np.array_equal(row.prompt_tokens, other.prompt_tokens)


class Packer:
    """Cuts a stream of rows into micro-batches of at most a budget of tokens, shared prompts counted once.

    A batch closes when the next row would overflow it, so the cuts depend on the rows' order alone, not on the
    pieces in which they arrive. Packed rows waste nothing, and a group's rows are neighbours: no other order would
    save work.
    """

    def __init__(self, token_budget: int) -> None:
        self._budget = token_budget
        self._open: list[TrainingRow] = []
        self._tokens = 0

    def add(self, rows: Sequence[TrainingRow]) -> Iterator[list[TrainingRow]]:
        """The micro-batches that these rows complete, for `pack`. A row longer than the budget gets one of its own."""
        for row in rows:
            shared = bool(self._open) and _share_prompt(self._open[-1], row)
            tokens = len(row.tokens) if shared else row.length
            if self._open and self._tokens + tokens > self._budget:
                yield self._close()
                tokens = row.length
            self._open.append(row)
            self._tokens += tokens

    def flush(self) -> Iterator[list[TrainingRow]]:
        """The last, partly filled micro-batch, if there is one."""
        if self._open:
            yield self._close()

    def _close(self) -> list[TrainingRow]:
        rows, self._open, self._tokens = self._open, [], 0
        return rows
