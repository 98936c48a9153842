"""How rows are packed into micro-batches, and which rank computes which rows.

    partition = RankPartitioner(token_budget=8192, rank=1, ranks=4)
    for rows in partition.add(more): batch = pack(rows)     # this rank's micro-batches, one a round; empty without rows
    for rows in partition.flush(): ...

A round is what `ranks` micro-batches of `Packer` hold, cut anew so that the largest is as small as possible: every rank
gets as many micro-batches, and about as many tokens. The cuts depend on the rows' order alone; on one rank they are the
packer's. All ranks take part in every round, because a layer's weights are whole only while all of them compute it.

Rows of a model that can't be packed are padded on the right to one length (`Segments.padded`); a micro-batch then has
as many tokens as rows times the longest, prompts included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from raypoly.core.values import Int32
from raypoly.learner.training_rows import TrainingRow


@dataclass(eq=False)  # frozen ones are taken apart by torch.compile, which then compiles for each number of segments
class Segments:
    """G segments of a packed batch, prompts and responses, and which tokens each sees; never changed."""

    lengths: tuple[int, ...]
    prompts: tuple[int | None, ...]
    """For a response: which segment is its prompt."""
    starts: Tensor
    """int32 [G + 1]: where each segment starts, and the end."""
    seen: Tensor
    """int64: the positions in S that the segments see, one segment behind the other."""
    seen_starts: Tensor
    """int32 [G + 1]: where each segment's part of `seen` starts, and the end."""
    longest: int
    """Tokens of the longest segment."""
    longest_seen: int
    """Tokens of its largest part of `seen`."""

    @classmethod
    def of(cls, lengths: Sequence[int], prompts: Sequence[int | None]) -> Segments:
        """Segments of these lengths, one behind the other; each prompt comes before its responses."""
        ends = list(accumulate(lengths, initial=0))
        places = [torch.arange(start, end) for start, end in pairwise(ends)]
        seen = [
            own if prompt is None else torch.cat([places[prompt], own])
            for own, prompt in zip(places, prompts, strict=True)
        ]
        seen_ends = list(accumulate((len(part) for part in seen), initial=0))
        return cls(
            lengths=tuple(lengths),
            prompts=tuple(prompts),
            starts=torch.tensor(ends, dtype=torch.int32),
            seen=torch.cat(seen),
            seen_starts=torch.tensor(seen_ends, dtype=torch.int32),
            longest=max(lengths),
            longest_seen=max(len(part) for part in seen),
        )

    def padded(self) -> tuple[Tensor, Tensor]:
        """Each response behind its prompt as a row of its own: int64 [B, L], the position in S of each token, any after
        a row's end; and int64 [S], the place in B x L of each token in S (of a shared prompt, in its last row)."""
        seen = torch.split(self.seen, self.seen_starts.diff().tolist())
        rows = [own for own, prompt in zip(seen, self.prompts, strict=True) if prompt is not None]
        index_BL = pad_sequence(rows, batch_first=True)
        place_S = torch.empty(sum(self.lengths), dtype=torch.int64)
        for number, row in enumerate(rows):
            place_S[row] = number * index_BL.shape[1] + torch.arange(len(row))
        return index_BL, place_S

    def to(self, device: torch.device) -> Segments:
        tensors = {name: getattr(self, name).to(device) for name in ("starts", "seen", "seen_starts")}
        return replace(self, **tensors)


@dataclass(frozen=True)
class MicroBatch:
    """B rows, one behind the other, a prompt that neighbours share once: S tokens, T of them in responses."""

    input_ids: Tensor
    """int64 [1, S]."""
    positions: Tensor
    """int64 [1, S]: each token's position in its own row."""
    segments: Segments
    """Prompts and responses, in the order of S."""
    predicts: Tensor
    """int64 [T]: positions in S whose output predicts a response token."""
    targets: Tensor
    """int64 [T]."""
    sampler_logprobs: Tensor
    """float32 [T]."""
    row_of: Tensor
    """int64 [T]: the row of each response token."""
    advantages: Tensor
    """float32 [B]."""
    lengths: tuple[int, ...]
    """Response tokens of each row."""


def pack(rows: Sequence[TrainingRow]) -> MicroBatch:
    """One micro-batch of these rows, in their order."""
    tokens: list[Int32] = []
    prompts: list[int | None] = []
    positions, predicts = [], []
    used = prompt = 0  # tokens so far; the segment that is the current prompt
    last = 0  # the position of its last token, which predicts the first one of each response
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
    """Cuts a stream of rows into micro-batches of at most a budget of tokens, shared prompts counted once; with
    `padded`, every row as long as the longest.

    A batch closes when the next row would overflow it, so the cuts depend on the rows' order alone, not on the
    pieces in which they arrive. Packed rows waste nothing, and a group's rows are neighbours: no other order would
    save work.
    """

    def __init__(self, token_budget: int, padded: bool = False) -> None:
        self._budget, self._padded = token_budget, padded
        self._open: list[TrainingRow] = []
        self._tokens = 0

    def add(self, rows: Sequence[TrainingRow]) -> Iterator[list[TrainingRow]]:
        """The micro-batches that these rows complete, for `pack`. A row longer than the budget gets one of its own."""
        for row in rows:
            tokens = self._tokens_with(row)
            if self._open and tokens > self._budget:
                yield self._close()
                tokens = row.length
            self._open.append(row)
            self._tokens = tokens

    def flush(self) -> Iterator[list[TrainingRow]]:
        """The last, partly filled micro-batch, if there is one."""
        if self._open:
            yield self._close()

    def _tokens_with(self, row: TrainingRow) -> int:
        """Tokens of the open micro-batch and this row."""
        if self._padded:
            return (len(self._open) + 1) * max(other.length for other in (*self._open, row))
        shared = bool(self._open) and _share_prompt(self._open[-1], row)
        return self._tokens + (len(row.tokens) if shared else row.length)

    def _close(self) -> list[TrainingRow]:
        rows, self._open, self._tokens = self._open, [], 0
        return rows


class RankPartitioner:
    """Reads all rows of a step, in prompt and rollout order, and gives one rank its part."""

    def __init__(self, token_budget: int, rank: int = 0, ranks: int = 1, padded: bool = False) -> None:
        self._budget, self._rank, self._ranks, self._padded = token_budget, rank, ranks, padded
        self._packer = Packer(token_budget, padded)
        self._round: list[list[TrainingRow]] = []

    def add(self, rows: Sequence[TrainingRow]) -> Iterator[list[TrainingRow]]:
        """This rank's part of each round that these rows complete."""
        for batch in self._packer.add(rows):
            self._round.append(batch)
            if len(self._round) == self._ranks:
                yield self._part()

    def flush(self) -> Iterator[list[TrainingRow]]:
        """This rank's part of the last round, if rows are left."""
        self._round += self._packer.flush()
        if self._round:
            yield self._part()

    def _part(self) -> list[TrainingRow]:
        batches, self._round = self._round, []
        if self._ranks > 1:
            batches = even([row for batch in batches for row in batch], self._ranks, self._budget, self._padded)
        return batches[self._rank] if self._rank < len(batches) else []


def even(rows: Sequence[TrainingRow], parts: int, token_budget: int, padded: bool = False) -> list[list[TrainingRow]]:
    """Rows that fit into `parts` micro-batches of the budget, in at most so many, the largest as small as possible."""
    low, high = 0, max(token_budget, *(row.length for row in rows))  # too small, large enough
    while high - low > 1:
        middle = (low + high) // 2
        if len(_cut(rows, middle, padded)) <= parts:
            high = middle
        else:
            low = middle
    return _cut(rows, high, padded)


def _cut(rows: Sequence[TrainingRow], token_budget: int, padded: bool) -> list[list[TrainingRow]]:
    packer = Packer(token_budget, padded)
    return [*packer.add(rows), *packer.flush()]
