"""Packing of rows into micro-batches, and their division among ranks.

    partition = RankPartitioner(token_budget=8192, rank=1, ranks=4)
    for rows in partition.add(more): batch = pack(rows)     # this rank's micro-batches, one a round; empty without rows
    for rows in partition.flush(): ...

Cuts depend on the rows' order alone, never on the pieces in which they arrive: a resumed step repeats every sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from raypoly.core.values import Float32, Int32
from raypoly.learner.ranks import Ranks
from raypoly.learner.training_rows import TrainingRow


@dataclass(eq=False)  # not frozen: torch.compile takes frozen ones apart and compiles for each number of segments
class Segments:
    """G segments of a packed batch, prompts and responses, and which tokens each sees. Never changed."""

    lengths: tuple[int, ...]
    prompts: tuple[int | None, ...]
    """For a response: which segment is its prompt."""
    starts: Tensor
    """int32 [G + 1]: where each segment starts, and the end."""
    seen: Tensor
    """int64: positions in S that the segments see, segment by segment."""
    seen_starts: Tensor
    """int32 [G + 1]: where each segment's part of `seen` starts, and the end."""
    longest: int
    longest_seen: int
    """Tokens of the longest segment, and of the largest part of `seen`."""

    @classmethod
    def of(cls, lengths: Sequence[int], prompts: Sequence[int | None]) -> Segments:
        """Segments of these lengths. Each prompt comes before its responses."""
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
        """Rows of prompt and response: int64 [B, L], the position in S of each token, any after a row's end; and int64
        [S], the place in B x L of each token in S."""
        # Which token fills a row on its right is of no importance: causal layers show it to none before it. A shared
        # prompt is in several rows, and its place is overwritten by each: the last row counts.
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
    """B rows, a prompt that neighbours share once: S tokens, T of them trained: in responses, and no observation."""

    input_ids: Tensor
    """int64 [1, S]."""
    positions: Tensor
    """int64 [1, S]: each token's position in its own row."""
    segments: Segments
    predicts: Tensor
    """int64 [T]: positions in S whose output predicts a trained token."""
    targets: Tensor
    """int64 [T]."""
    sampler_logprobs: Tensor
    """float32 [T]."""
    row_of: Tensor
    """int64 [T]: the row of each trained token."""
    advantages: Tensor
    """float32 [T]: at each trained token its own advantage, or its row's."""
    lengths: tuple[int, ...]
    """Trained tokens of each row."""


def pack(rows: Sequence[TrainingRow]) -> MicroBatch:
    """One micro-batch of these rows, in their order."""
    tokens: list[Int32] = []
    prompts: list[int | None] = []
    positions, predicts = [], []
    used = prompt = 0  # tokens so far; the segment that is the current prompt
    last = 0  # position of the prompt's last token: it predicts the first token of each of its responses
    for i, row in enumerate(rows):
        if i == 0 or not _share_prompt(rows[i - 1], row):
            prompt, used = len(tokens), used + len(row.prompt_tokens)
            last = used - 1
            tokens.append(row.prompt_tokens)
            prompts.append(None)
            positions.append(np.arange(len(row.prompt_tokens)))
        # A response's tokens but the last predict its next ones.
        predicts.append(_trained(row, np.concatenate([[last], np.arange(used, used + len(row.tokens))])[:-1]))
        used += len(row.tokens)
        tokens.append(row.tokens)
        prompts.append(prompt)
        positions.append(len(row.prompt_tokens) + np.arange(len(row.tokens)))
    lengths = tuple(row.trained for row in rows)
    return MicroBatch(
        input_ids=torch.from_numpy(np.concatenate(tokens).astype(np.int64))[None],
        positions=torch.from_numpy(np.concatenate(positions))[None],
        segments=Segments.of([len(part) for part in tokens], prompts),
        predicts=torch.from_numpy(np.concatenate(predicts)),
        targets=torch.from_numpy(np.concatenate([_trained(row, row.tokens) for row in rows]).astype(np.int64)),
        sampler_logprobs=torch.from_numpy(np.concatenate([_trained(row, row.sampler_logprobs) for row in rows])),
        row_of=torch.from_numpy(np.repeat(np.arange(len(rows)), lengths)),
        advantages=torch.from_numpy(
            np.concatenate([np.broadcast_to(np.float32(row.advantage), row.trained) for row in rows])
        ),
        lengths=lengths,
    )


def _trained(row: TrainingRow, values: NDArray[Any]) -> NDArray[Any]:
    """Of values [T] those at the tokens that are trained."""
    return values if row.mask is None else values[row.mask]


def _share_prompt(row: TrainingRow, other: TrainingRow) -> bool:
    return np.array_equal(row.prompt_tokens, other.prompt_tokens)


class Packer:
    """Cuts a stream of rows into micro-batches of at most a budget of tokens. A prompt that neighbours share counts
    once; with `padded`, every row is as long as the longest."""

    def __init__(self, token_budget: int, padded: bool = False) -> None:
        self._budget, self._padded = token_budget, padded
        self._open: list[TrainingRow] = []
        self._tokens = 0

    def add(self, rows: Sequence[TrainingRow]) -> Iterator[list[TrainingRow]]:
        """Micro-batches that these rows complete. A row longer than the budget gets one of its own."""
        # First fit in order: packed rows waste nothing and a group's rows are neighbours, so no order would save work.
        for row in rows:
            tokens = self._tokens_with(row)
            if self._open and tokens > self._budget:
                yield self._close()
                tokens = row.length
            self._open.append(row)
            self._tokens = tokens

    def flush(self) -> Iterator[list[TrainingRow]]:
        if self._open:
            yield self._close()

    def _tokens_with(self, row: TrainingRow) -> int:
        if self._padded:
            return (len(self._open) + 1) * max(other.length for other in (*self._open, row))
        shared = bool(self._open) and _share_prompt(self._open[-1], row)
        return self._tokens + (len(row.tokens) if shared else row.length)

    def _close(self) -> list[TrainingRow]:
        rows, self._open, self._tokens = self._open, [], 0
        return rows


class RankPartitioner:
    """One rank's part of a step's rows, given in prompt and rollout order.

    A round is what `ranks` micro-batches of `Packer` hold, cut anew into equal parts.
    """

    def __init__(self, token_budget: int, rank: int = 0, ranks: int = 1, padded: bool = False) -> None:
        self._budget, self._rank, self._ranks, self._padded = token_budget, rank, ranks, padded
        self._packer = Packer(token_budget, padded)
        self._round: list[list[TrainingRow]] = []

    def add(self, rows: Sequence[TrainingRow]) -> Iterator[list[TrainingRow]]:
        for batch in self._packer.add(rows):
            self._round.append(batch)
            if len(self._round) == self._ranks:
                yield self._part()

    def flush(self) -> Iterator[list[TrainingRow]]:
        self._round += self._packer.flush()
        if self._round:
            yield self._part()

    def _part(self) -> list[TrainingRow]:
        # Every rank computes in every round, also without rows: a layer's weights are whole only while all take part.
        batches, self._round = self._round, []
        if self._ranks > 1:
            batches = even([row for batch in batches for row in batch], self._ranks, self._budget, self._padded)
        return batches[self._rank] if self._rank < len(batches) else []


def even(rows: Sequence[TrainingRow], parts: int, token_budget: int, padded: bool = False) -> list[list[TrainingRow]]:
    """Cut rows that fit into `parts` micro-batches, the largest as small as possible."""
    # Bisection over the budget. More budget never makes more micro-batches; `high` is large enough by assumption.
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


def compute_logprobs(
    pairs: Sequence[tuple[Int32, Int32]],
    partition: RankPartitioner,
    ranks: Ranks,
    forward: Callable[[Sequence[TrainingRow]], Float32],
) -> list[Float32]:
    """Log-probabilities, float32 [T], of each pair's response of T tokens after its prompt. Other ranks than 0: [].

    Neighbours share a prompt. `forward` gives those of its rows' response tokens, concatenated. All ranks call it
    together, also without rows.
    """
    # Round r's parts are in rank order in rows' order: so the results, dealt out again round by round, are in the order
    # of `rows`.
    rows = [TrainingRow(*pair, np.zeros(len(pair[1]), np.float32), 0.0, 0) for pair in pairs if len(pair[1])]
    rounds = [forward(part) for batches in (partition.add(rows), partition.flush()) for part in batches]
    parts = ranks.gather(rounds)
    if ranks.rank:
        return []
    flat = np.concatenate([np.zeros(0, np.float32), *(part for dealt in zip(*parts, strict=True) for part in dealt)])
    return np.split(flat, np.cumsum([len(tokens) for _, tokens in pairs])[:-1]) if pairs else []


def compute_cross_logprobs(
    prompts: Sequence[Int32],
    responses: Sequence[Int32],
    partition: RankPartitioner,
    ranks: Ranks,
    forward: Callable[[Sequence[TrainingRow]], Float32],
) -> tuple[Float32, ...]:
    """Log-probabilities after each of P prompts, float32 [P, T], of each response; as `compute_logprobs`."""
    pairs = [(prompt, tokens) for prompt in prompts for tokens in responses]
    found = compute_logprobs(pairs, partition, ranks, forward)
    return tuple(np.stack(found[place :: len(responses)]) for place in range(len(responses))) if found else ()
