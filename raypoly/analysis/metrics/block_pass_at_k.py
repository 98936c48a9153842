"""pass@k of attempts that are drawn in blocks: the K attempts behind one plan are drawn jointly, plans are not.

    passed = [0, 1, 0, 0,  0, 0, 0, 0,  1, 0, 0, 1]      # one problem: three blocks of four, in the group's order
    block_pass_at_k(passed, block=4, k=2)                # 1/3 + 1/3: the first two of each block
    block_pass_at_k(passed, block=4, k=8)                # two of the three blocks: 1.0

Drawing k attempts one by one would mix blocks, which no program does. So k is at most the block, and then some of a
block's attempts are taken; or a multiple of it, and then whole blocks are (arXiv 2605.27000, table 20).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from raypoly.analysis.metrics.pass_at_k import ks, pass_at_k

Select = Literal["first", "last", "random"]


def block_pass_at_k(passed: Sequence[bool], block: int, k: int, select: Select = "first") -> float:
    """pass@k of one problem, whose attempts [N] come as T = N/block blocks one behind another.

    k <= block: the mean over blocks of the chance that k of its attempts hold one that passed; `select` takes the first
    k, the last k, or k at random (the expectation). k = b * block: 1 - C(T-c, b)/C(T, b), where c blocks hold one that
    passed. With block 1 this is `pass_at_k`.

    Raises `ValueError` where N is no multiple of the block, for another k, and for k > N.
    """
    samples = len(passed)
    blocks = _blocks(samples, block)
    if k % block == 0:
        solved = sum(any(passed[start : start + block]) for start in blocks)
        return _whole_blocks(len(blocks), solved, k // block, block)
    if not 1 <= k < block:
        raise ValueError(
            f"pass@{k} of blocks of {block} is not defined: k must be below the block, or a multiple of it"
        )
    return math.fsum(_within(passed[start : start + block], k, select) for start in blocks) / len(blocks)


def block_ks(samples: int, block: int) -> list[int]:
    """The k that are shown: 1, 2, 4 ... below the block; then 1, 2, 4 ... blocks, up to the number of samples.

    Raises `ValueError` where `samples` is no multiple of the block.
    """
    blocks = _blocks(samples, block)
    return [*ks(block - 1), *(block * k for k in ks(len(blocks)))]


def _blocks(samples: int, block: int) -> range:
    """Where each block starts."""
    if block < 1 or samples < 1 or samples % block:
        raise ValueError(f"{samples} attempts are no whole number of blocks of {block}")
    return range(0, samples, block)


def _whole_blocks(blocks: int, solved: int, draws: int, block: int) -> float:
    if not 1 <= draws <= blocks:
        raise ValueError(f"pass@{draws * block} needs 1 to {blocks} blocks of {block}")
    return pass_at_k(blocks, solved, draws)


def _within(passed: Sequence[bool], k: int, select: Select) -> float:
    if select == "random":
        return pass_at_k(len(passed), sum(map(bool, passed)), k)
    return float(any(passed[:k] if select == "first" else passed[-k:]))
