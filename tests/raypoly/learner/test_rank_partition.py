"""How rows are divided over ranks."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from raypoly.learner.packing import Packer, RankPartitioner, even, pack
from raypoly.learner.training_rows import TrainingRow


def groups(seed: int, count: int, size: int = 4) -> list[TrainingRow]:
    """Groups of rows with one prompt each."""
    rng = np.random.default_rng(seed)

    def tokens(low: int, high: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return rng.integers(2, 200, rng.integers(low, high)).astype(np.int32)

    prompts = [tokens(3, 20) for _ in range(count)]
    answers = [(prompt, tokens(1, 30)) for prompt in prompts for _ in range(size)]
    return [TrainingRow(prompt, answer, np.zeros(len(answer), np.float32), 1.0, 0) for prompt, answer in answers]


def dealt(rows: list[TrainingRow], ranks: int, budget: int = 100, pieces: int = 7) -> list[list[list[TrainingRow]]]:
    """By rank, its part of each round."""
    found = []
    for rank in range(ranks):
        dealer, parts = RankPartitioner(budget, rank, ranks), []
        for start in range(0, len(rows), pieces):
            parts += dealer.add(rows[start : start + pieces])
        found.append([*parts, *dealer.flush()])
    return found


def size(rows: list[TrainingRow]) -> int:
    return pack(rows).input_ids.shape[1]


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("count", [1, 3, 10])
def test_every_row_is_dealt_once_in_order_and_every_rank_takes_part_in_every_round(ranks: int, count: int) -> None:
    rows = groups(0, count)
    found = dealt(rows, ranks)
    assert len({len(parts) for parts in found}) == 1
    in_order = [row for parts in zip(*found, strict=True) for row in chain(*parts)]
    assert list(map(id, in_order)) == list(map(id, rows))
    assert all(size(part) <= 100 for parts in found for part in parts if part)


def test_ranks_get_about_as_many_tokens_of_each_round() -> None:
    found = dealt(groups(1, 40), 4, budget=400)
    for parts in zip(*found, strict=True):
        sizes = [size(part) for part in parts]
        assert max(sizes) - min(sizes) <= 2 * (30 + 20), "cuts lie between rows"
    tokens = [sum(size(part) for part in parts) for parts in found]
    assert max(tokens) < 1.05 * min(tokens)


def test_deals_depend_on_the_order_of_rows_alone() -> None:
    rows = groups(2, 10)
    shapes = {
        tuple(tuple(len(part) for part in parts) for parts in dealt(rows, 3, pieces=pieces)) for pieces in (1, 7, 40)
    }
    assert len(shapes) == 1


def test_one_rank_gets_what_the_packer_cuts() -> None:
    rows, packer = groups(3, 10), Packer(100)
    assert dealt(rows, 1) == [[*packer.add(rows), *packer.flush()]]


def test_fewer_rows_than_ranks_leave_the_last_ranks_without() -> None:
    rows = groups(4, 1, size=3)
    assert [[len(part) for part in parts] for parts in dealt(rows, 4)] == [[1], [1], [1], [0]]


def test_no_cut_into_as_many_parts_has_a_smaller_largest() -> None:
    rows = groups(5, 1, size=7)
    parts = even(rows, 3, 1000)
    by_hand = (max(size(rows[:a]), size(rows[a:b]), size(rows[b:])) for a in range(1, 6) for b in range(a + 1, 7))
    assert max(map(size, parts)) == min(by_hand)
