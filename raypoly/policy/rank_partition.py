"""Which rank computes which rows: every rank as many micro-batches, and about as many tokens.

    dealer = Dealer(token_budget=8192, rank=1, ranks=4)
    for rows in dealer.add(more): ...            # this rank's micro-batches, one a round; empty where none is left
    for rows in dealer.flush(): ...

A round is what `ranks` micro-batches of `Packer` hold, cut anew so that the largest is as small as can be. So cuts
depend on the rows' order alone; on one rank they are the packer's. All ranks take part in every round, because the
weights of a layer are whole only while all of them compute it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raypoly.policy.packing import Packer
from raypoly.policy.training_rows import TrainingRow


class RankPartitioner:
    """Sees all rows of a step, in prompt and rollout order, and gives one rank its part."""

    def __init__(self, token_budget: int, rank: int = 0, ranks: int = 1) -> None:
        self._budget, self._rank, self._ranks = token_budget, rank, ranks
        self._packer = Packer(token_budget)
        self._round: list[list[TrainingRow]] = []

    def add(self, rows: Sequence[TrainingRow]) -> Iterator[list[TrainingRow]]:
        """This rank's part of each round that these rows complete."""
        yield from self._deal(self._packer.add(rows))

    def flush(self) -> Iterator[list[TrainingRow]]:
        """Its part of what is left."""
        yield from self._deal(self._packer.flush())
        if self._round:
            yield self._part()

    def _deal(self, batches: Iterator[list[TrainingRow]]) -> Iterator[list[TrainingRow]]:
        for batch in batches:
            self._round.append(batch)
            if len(self._round) == self._ranks:
                yield self._part()

    def _part(self) -> list[TrainingRow]:
        batches, self._round = self._round, []
        if self._ranks > 1:
            batches = even([row for batch in batches for row in batch], self._ranks, self._budget)
        return batches[self._rank] if self._rank < len(batches) else []


def even(rows: Sequence[TrainingRow], parts: int, token_budget: int) -> list[list[TrainingRow]]:
    """Rows that fit into `parts` micro-batches of the budget, in at most so many, the largest as small as can be."""
    low, high = 0, max(token_budget, *(row.length for row in rows))  # too small, large enough
    while high - low > 1:
        middle = (low + high) // 2
        if len(_cut(rows, middle)) <= parts:
            high = middle
        else:
            low = middle
    return _cut(rows, high)


def _cut(rows: Sequence[TrainingRow], token_budget: int) -> list[list[TrainingRow]]:
    packer = Packer(token_budget)
    return [*packer.add(rows), *packer.flush()]
