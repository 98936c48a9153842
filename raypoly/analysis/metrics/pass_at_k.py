"""pass@k of samples and of blocks, maj@k, and expected distinct strategies and behaviours in k draws; all unbiased.

    passed = [0, 1, 0, 0,  0, 0, 0, 0,  1, 0, 0, 1]      # one problem: three blocks of four, in the group's order
    block_pass_at_k(passed, block=4, k=2)                # 1/3 + 1/3: the first two of each block
    block_pass_at_k(passed, block=4, k=8)                # two of the three blocks: 1.0
    maj_at_k(["x", "y", "y"], [False, True, True], k=3)  # 1.0

The K attempts after one plan are drawn jointly, as a block. No scaffold mixes blocks, so k is at most the block, or a
multiple of it (arXiv 2605.27000, table 20). maj@k votes by what an attempt answers, or its program returns on example
inputs (arXiv 2203.11171; ties by order: arXiv 2605.27000, section 4.6).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from raypoly.algorithms.objectives.subset_draws import some_sets
from raypoly.core.seeds import derive

STRATEGY_DRAWS = 8
"""Draws in which `strategies_correct` counts distinct correct strategies."""


def _missed(samples: int, hits: int, draws: int) -> float:
    """Chance that `draws` of `samples` without replacement hold none of `hits` given ones."""
    return math.comb(samples - hits, draws) / math.comb(samples, draws)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k) (Chen et al. 2021; equation 5 of the code study).

    Raises `ValueError` where k > n: the estimate would be biased.
    """
    if not 0 <= correct <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs 1 <= k <= n and 0 <= c <= n, got n={samples}, c={correct}")
    return 1.0 - _missed(samples, correct, k)


def expected_distinct(samples: int, sizes: Iterable[int], draws: int) -> float:
    """Expected distinct strategies in `draws` of `samples` without replacement (unbiased).

    `sizes`: the number of *correct* samples of each strategy. Raises `ValueError` for more draws than samples.
    """
    if draws > samples:
        raise ValueError(f"{draws} draws need at least as many samples, got {samples}")
    return sum(1.0 - _missed(samples, size, draws) for size in sizes)


def drawn_strategies(samples: int, strategies: Iterable[Hashable]) -> float:
    """The same in 8 draws, or in all samples if these are fewer, from a name for each correct sample."""
    return expected_distinct(samples, Counter(strategies).values(), min(STRATEGY_DRAWS, samples))


def distinct(ids: Iterable[int]) -> int:
    """Distinct ids other than 0."""
    return len(set(ids) - {0})


@dataclass(frozen=True)
class JudgedGroup:
    """Samples of one problem that a judge saw at once: their labels compare with one another alone."""

    samples: int
    strategies: tuple[int, ...]
    """Labels of the correct samples, without degenerate ones."""


@dataclass(frozen=True)
class ProblemOutcome:
    """One problem's samples, as an evaluation counts them."""

    samples: int
    correct_strategies: tuple[str | None, ...]
    """Of each correct sample, by execution trace; None without evidence."""
    judged: tuple[JudgedGroup, ...] | None = None
    structural_strategies: tuple[int, ...] | None = None
    """By structure, over all samples; None without evidence."""
    behaviours: tuple[str, ...] | None = None
    """What the tests saw of programs, right or wrong, where known."""


def ks(samples: int) -> list[int]:
    """1, 2, 4 ... up to `samples`."""
    return [2**i for i in range(samples.bit_length()) if 2**i <= samples]


def summarise(outcomes: Sequence[ProblemOutcome], also: Iterable[int] = ()) -> Mapping[str, object]:
    """`pass_at_k` ({"1": ...}), `strategies_correct...` and `behaviours`, means over problems; None: not measured.

    `also`: further k, as far as there are samples.
    """
    samples = min(outcome.samples for outcome in outcomes)

    def mean(values: Iterable[float]) -> float:
        return math.fsum(values) / len(outcomes)

    curve = {
        str(k): mean(pass_at_k(outcome.samples, len(outcome.correct_strategies), k) for outcome in outcomes)
        for k in sorted({*ks(samples), *(k for k in also if k <= samples)})
    }
    enough = samples >= STRATEGY_DRAWS

    def counted(strategies: Sequence[Sequence[object] | None]) -> float | None:
        known = [each for each in strategies if each is not None and None not in each]
        if not enough or len(known) < len(outcomes):
            return None
        return mean(drawn_strategies(o.samples, each) for o, each in zip(outcomes, known, strict=True))

    def judged() -> float | None:
        found = [[group for group in outcome.judged or () if group.samples >= STRATEGY_DRAWS] for outcome in outcomes]
        if not all(found):
            return None
        return mean(
            math.fsum(drawn_strategies(group.samples, group.strategies) for group in groups) / len(groups)
            for groups in found
        )

    return {
        "pass_at_k": curve,
        "strategies_correct": counted([outcome.correct_strategies for outcome in outcomes]),
        "strategies_correct_judge": judged(),
        "strategies_correct_structural": counted([outcome.structural_strategies for outcome in outcomes]),
        "behaviours": counted([outcome.behaviours for outcome in outcomes]),
    }


Select = Literal["first", "last", "random"]


def block_pass_at_k(passed: Sequence[bool], block: int, k: int, select: Select = "first") -> float:
    """pass@k of one problem, whose attempts [N] are T = N / block blocks in order.

    k <= block: mean over blocks of the chance that k of its attempts hold one that passed: the first k, the last k, or
    k at random, by `select`. k = b * block: 1 - C(T-c, b) / C(T, b), where c blocks hold one that passed. Raises
    `ValueError` where N is no multiple of the block, for another k, and for k > N.
    """
    samples = len(passed)
    blocks = _blocks(samples, block)
    if k % block == 0:
        solved = sum(any(passed[start : start + block]) for start in blocks)
        if not 1 <= k // block <= len(blocks):
            raise ValueError(f"pass@{k} needs 1 to {len(blocks)} blocks of {block}")
        return pass_at_k(len(blocks), solved, k // block)
    if not 1 <= k < block:
        raise ValueError(
            f"pass@{k} of blocks of {block} is not defined: k must be below the block, or a multiple of it"
        )
    return math.fsum(_within(passed[start : start + block], k, select) for start in blocks) / len(blocks)


def block_ks(samples: int, block: int, also: Iterable[int] = ()) -> list[int]:
    """1, 2, 4 ... below the block, then 1, 2, 4 ... blocks, and of `also` what is below a block or whole blocks.
    Raises `ValueError` unless `samples` are whole blocks."""
    blocks = _blocks(samples, block)
    further = (k for k in also if k <= samples and (k < block or k % block == 0))
    return sorted({*ks(block - 1), *(block * k for k in ks(len(blocks))), *further})


def _blocks(samples: int, block: int) -> range:
    """Starts of the blocks."""
    if block < 1 or samples < 1 or samples % block:
        raise ValueError(f"{samples} attempts are no whole number of blocks of {block}")
    return range(0, samples, block)


def _within(passed: Sequence[bool], k: int, select: Select) -> float:
    if select == "random":
        return pass_at_k(len(passed), sum(map(bool, passed)), k)
    return float(any(passed[:k] if select == "first" else passed[-k:]))


MOST_VOTES = 10_000
"""Sets of k attempts that vote: all of them up to this number, else so many different ones."""


def majority(signatures: Sequence[Hashable | None]) -> int | None:
    """The first attempt of the largest class; ties go to the class that comes first.

    None has no vote; None where nobody votes.
    """
    votes = Counter(signature for signature in signatures if signature is not None)
    if not votes:
        return None
    return signatures.index(max(votes, key=votes.__getitem__))  # of equal counts, the class that came first


def maj_at_k(signatures: Sequence[Hashable | None], passed: Sequence[bool], k: int, seed: int = 0) -> float:
    """Chance that the majority's choice among k of the N attempts passes; a vote without voters does not.

    Exact up to `MOST_VOTES` sets of k; else over so many different ones, drawn by a seed of `seed`, N and k, the same
    for all problems. Raises `ValueError` unless 1 <= k <= N = the number of verdicts.
    """
    attempts = len(signatures)
    if not 1 <= k <= attempts or len(passed) != attempts:
        raise ValueError(f"maj@{k} needs 1 <= k <= n, got n={attempts} with {len(passed)} verdicts")
    won = 0
    draws = some_sets(attempts, k, MOST_VOTES, derive(seed, "majority", attempts, k)).tolist()
    for places in draws:
        chosen = majority([signatures[place] for place in places])
        won += chosen is not None and bool(passed[places[chosen]])
    return won / len(draws)
