"""Evaluation metrics: unbiased pass@k, and the expected number of distinct correct strategies, and of distinct
behaviours, in k draws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

STRATEGY_DRAWS = 8
"""Draws in which `strategies_correct` counts distinct correct strategies."""


def _missed(samples: int, hits: int, draws: int) -> float:
    """The chance that `draws` of `samples` without replacement hold none of `hits` given ones."""
    return math.comb(samples - hits, draws) / math.comb(samples, draws)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k) (Chen et al. 2021; equation 5 of the code study).

    Raises `ValueError` where k > n: the estimate would be biased.
    """
    if not 0 <= correct <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs 1 <= k <= n and 0 <= c <= n, got n={samples}, c={correct}")
    return 1.0 - _missed(samples, correct, k)


def expected_strategies(samples: int, strategies: Iterable[str], draws: int = STRATEGY_DRAWS) -> float:
    """Expected number of distinct strategies among the correct ones in `draws` of `samples`, without replacement.

    `strategies` holds one name for each *correct* sample. Unbiased: a sum over strategies of the chance to be drawn.
    """
    if draws > samples:
        raise ValueError(f"{draws} draws need at least as many samples, got {samples}")
    return expected_distinct(samples, Counter(strategies).values(), draws)


def expected_distinct(samples: int, sizes: Iterable[int], draws: int) -> float:
    """`expected_strategies` by the number of samples of each strategy."""
    return sum(1.0 - _missed(samples, size, draws) for size in sizes)


def drawn_strategies(samples: int, strategies: Iterable[str]) -> float:
    """`expected_strategies` in 8 draws, or in all samples where there are fewer."""
    return expected_strategies(samples, strategies, min(STRATEGY_DRAWS, samples))


def distinct(ids: Iterable[int]) -> int:
    """Distinct strategies; an id of 0 is none."""
    return len(set(ids) - {0})


@dataclass(frozen=True)
class JudgedGroup:
    """The samples of one problem that a judge saw at once: their labels compare with one another alone."""

    samples: int
    strategies: tuple[int, ...]
    """The label of each correct sample, degenerate ones left out."""


@dataclass(frozen=True)
class ProblemOutcome:
    """One problem's samples, as evaluation counts them."""

    samples: int
    correct_strategies: tuple[str | None, ...]
    """The strategy by execution trace of each correct sample; None where no evidence is kept."""
    judged: tuple[JudgedGroup, ...] | None = None
    """What the judge said, where it was asked."""
    structural_strategies: tuple[int, ...] | None = None
    """The same by structure, over all samples, where the programs left evidence."""
    behaviours: tuple[str, ...] | None = None
    """What the tests saw of each program, right or wrong, as far as it is known."""


def ks(samples: int) -> list[int]:
    """1, 2, 4 ... up to the number of samples."""
    return [2**i for i in range(samples.bit_length()) if 2**i <= samples]


def summarise(outcomes: Sequence[ProblemOutcome], also: Iterable[int] = ()) -> Mapping[str, object]:
    """`pass_at_k` ({"1": ...}), `strategies_correct` and `behaviours`, averaged over problems; `None` where not
    measured.

    `also`: further k, left out above the number of samples.
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
        return mean(expected_strategies(o.samples, map(str, each)) for o, each in zip(outcomes, known, strict=True))

    def judged() -> float | None:
        found = [[group for group in outcome.judged or () if group.samples >= STRATEGY_DRAWS] for outcome in outcomes]
        if not all(found):
            return None
        return mean(
            math.fsum(expected_strategies(group.samples, map(str, group.strategies)) for group in groups) / len(groups)
            for groups in found
        )

    return {
        "pass_at_k": curve,
        "strategies_correct": counted([outcome.correct_strategies for outcome in outcomes]),
        "strategies_correct_judge": judged(),
        "strategies_correct_structural": counted([outcome.structural_strategies for outcome in outcomes]),
        "behaviours": counted([outcome.behaviours for outcome in outcomes]),
    }
