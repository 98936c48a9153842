"""How fast Poly-EPO's closed form is, beside three ways to go through all sets, and what groups of 256 cost.

    python -m benchmarks.objectives [--groups 1024]

First N=8, n=4: a batch of groups whose rewards and labels vary, one rollout in ten degenerate. NumPy takes all sets of
all groups at once, as the set engine does those of one: members are gathered and sorted to count strategies.
Then N=256, n=16, some 10^25 sets, by how the strategies fall, with and without the tables of chances from an earlier
group. Last the same batch, and groups of 1,024, by `strategy_coverage`.
All ways must agree within 1e-9. CPU seconds of one process, the best of several runs. Exit code 1 where the batch takes
20 ms or more, is less than 20 times as fast as the Python loop or less than 3 times as fast as NumPy, where a group of
256 takes 50 ms or more, or where `strategy_coverage` takes longer than `poly_epo`, or 50 ms for a group of 1,024.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from raypoly.algorithms.objectives import build
from raypoly.algorithms.objectives.set_functions import SetConfig, SetObjective, Sets
from raypoly.algorithms.objectives.subset_draws import all_sets, avoid, avoiding
from raypoly.core.values import Bool, Float64, Int32

N, SET = 8, 4
MOST_MS, LEAST_OVER_LOOP, LEAST_OVER_NUMPY = 20.0, 20.0, 3.0
LARGE_N, LARGE_SET, MOST_LARGE_MS = 256, 16, 50.0
RUNS = 7


HUGE_N, HUGE_SETS = 1024, (4, 16, 512, 1023)


class ByEngine(SetObjective):
    """Poly-EPO as a set function for the set engine."""

    needs = frozenset({"labels"})

    def score(self, sets: Sets) -> Float64:
        strategies = sets.strategies()
        return sets.rewards_Kn.mean(axis=1) * np.where(strategies > 1, strategies, 0) / self.config.set_size


def by_python(rewards: list[float], labels: list[int], degenerate: list[bool]) -> list[float]:
    """Algorithm 1, set by set."""
    scores = {}
    for members in itertools.combinations(range(len(rewards)), SET):
        strategies = len({labels[i] for i in members if not degenerate[i]})
        diversity = strategies / SET if strategies > 1 else 0.0
        scores[members] = sum(rewards[i] for i in members) / SET * diversity
    mean = sum(scores.values()) / len(scores)
    advantages = [0.0] * len(rewards)
    for members, score in scores.items():
        for i in members:
            advantages[i] += score - mean
    return advantages


def by_numpy(rewards_BN: Float64, labels_BN: Int32, degenerate_BN: Bool) -> Float64:
    """All sets of all groups."""
    sets_Kn = all_sets(rewards_BN.shape[1], SET)
    held_KN = np.zeros((len(sets_Kn), rewards_BN.shape[1]))
    np.put_along_axis(held_KN, sets_Kn.astype(np.int64), 1.0, axis=1)
    ids = np.where(degenerate_BN, -1, labels_BN)
    strategies_BK = np.count_nonzero(np.diff(np.sort(ids[:, sets_Kn], axis=2), axis=2, prepend=-1), axis=2)
    sums_BK = rewards_BN[:, sets_Kn].sum(axis=2)
    scores_BK = sums_BK * np.where(strategies_BK > 1, strategies_BK, 0) / SET**2
    scores_BK -= scores_BK.mean(axis=1, keepdims=True)
    out: Float64 = scores_BK @ held_KN
    return out


def best_ms(action: Callable[[], object], runs: int = RUNS) -> float:
    """CPU milliseconds of the fastest of several runs."""
    found = []
    for _ in range(runs):
        begin = time.process_time()
        action()
        found.append(time.process_time() - begin)
    return 1000 * min(found)


def drawn(groups: int, rng: np.random.Generator) -> tuple[Float64, Int32, Bool]:
    labels = rng.integers(1, rng.integers(2, N + 2, (groups, 1)), (groups, N)).astype(np.int32)
    return rng.integers(0, 2, (groups, N)).astype(np.float64), labels, rng.random((groups, N)) < 0.1


def small(groups: int) -> dict[str, float]:
    """Print the table of the batch; milliseconds by way."""
    rewards, labels, degenerate = drawn(groups, np.random.default_rng(0))
    ours, engine = build("poly_epo", set_size=SET), ByEngine(SetConfig(set_size=SET))
    each = list(zip(rewards, labels, degenerate, strict=True))
    plain = [tuple(part.tolist() for part in group) for group in each]
    ways: dict[str, Callable[[], object]] = {
        "closed form, the batch at once": lambda: ours.batch(rewards=rewards, labels=labels, degenerate=degenerate),
        "NumPy, all sets of all groups": lambda: by_numpy(rewards, labels, degenerate),
        "closed form, group by group": lambda: [ours.advantages(rewards=r, labels=c, degenerate=d) for r, c, d in each],
        "the set engine, group by group": lambda: [
            engine.advantages(rewards=r, labels=c, degenerate=d) for r, c, d in each
        ],
        "a Python loop over the sets": lambda: [by_python(*group) for group in plain],
    }
    want = by_numpy(rewards, labels, degenerate)
    for way in ways.values():
        np.testing.assert_allclose(np.array(way()), want, atol=1e-9)
    found = {name: best_ms(way, 40 if place < 2 else RUNS) for place, (name, way) in enumerate(ways.items())}
    first = next(iter(found.values()))
    print(f"N={N}, n={SET}, {groups:,} groups of {math.comb(N, SET)} sets")
    for name, value in found.items():
        print(f"  {name:34}{value:12.2f} ms{value / first:12.1f} x")
    return found


def patterns() -> dict[str, tuple[Int32, Bool]]:
    """Labels and degenerates of a large group, by how the strategies fall."""
    rng, none = np.random.default_rng(1), np.zeros(LARGE_N, dtype=np.bool_)
    one, own = np.ones(LARGE_N, dtype=np.int32), np.arange(1, LARGE_N + 1, dtype=np.int32)
    half = rng.permutation(none | (own % 2 == 0))
    return {
        "one strategy": (one, none),
        "sixteen": (rng.integers(1, 17, LARGE_N).astype(np.int32), none),
        "all different": (own, none),
        "all different, half degenerate": (own, half),
        "all degenerate": (own, ~none),
    }


def large() -> dict[str, float]:
    """Print the table of large groups; milliseconds by pattern, the slower of both."""
    objective, rewards = build("poly_epo", set_size=LARGE_SET), np.random.default_rng(2).random(LARGE_N)
    sets = f"{math.comb(LARGE_N, LARGE_SET):.1e} sets"
    print(f"\nN={LARGE_N}, n={LARGE_SET}, {sets}      first group    later group")
    slowest = {}
    for name, (labels, degenerate) in patterns().items():

        def one(labels: Int32 = labels, degenerate: Bool = degenerate) -> Float64:
            return objective.advantages(rewards=rewards, labels=labels, degenerate=degenerate)

        def cold(one: Callable[[], object] = one) -> None:
            avoid.cache_clear()
            avoiding.cache_clear()
            one()

        first, later = best_ms(cold), best_ms(one)
        slowest[name] = max(first, later)
        print(f"  {name:34}{first:12.2f} ms{later:12.2f} ms")
    return slowest


def coverage(groups: int) -> tuple[dict[str, float], dict[str, float]]:
    """Print the tables of `strategy_coverage`: milliseconds of the batch by way, of a group of 1,024 by set size."""
    rewards, labels, degenerate = drawn(groups, np.random.default_rng(0))
    params: dict[str, tuple[str, dict[str, Any]]] = {
        "poly_epo": ("poly_epo", {}),
        "poly_epo, blend 0.5": ("poly_epo", {"blend": 0.5}),
        "strategy_coverage": ("strategy_coverage", {}),
        "strategy_coverage, mean": ("strategy_coverage", {"baseline": "mean"}),
    }
    ours = {way: build(name, set_size=SET, **given) for way, (name, given) in params.items()}
    every = {"rewards": rewards, "labels": labels, "degenerate": degenerate}
    batch = dict.fromkeys(ours, math.inf)
    for _ in range(5):  # in turns, so that a slow moment is nobody's alone
        batch = {way: min(batch[way], best_ms(lambda one=one: one.batch(**every), RUNS)) for way, one in ours.items()}
    print(f"\nN={N}, n={SET}, the same {groups:,} groups as one batch")
    for way, value in batch.items():
        print(f"  {way:34}{value:12.2f} ms{value / batch['poly_epo']:12.1f} x")
    rng = np.random.default_rng(3)
    graded, ids = rng.random(HUGE_N), rng.integers(1, 17, HUGE_N)
    print(f"\nN={HUGE_N}, sixteen strategies, strategy_coverage      first group    later group")
    slowest = {}
    for n in HUGE_SETS:
        one = partial(build("strategy_coverage", set_size=n).advantages, rewards=graded, labels=ids)
        later = best_ms(one)
        first = best_ms(lambda one=one: (avoiding.cache_clear(), one()))
        slowest[f"n={n}"] = max(first, later)
        print(f"  {f'n={n}':34}{first:20.2f} ms{later:12.2f} ms")
    return batch, slowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1024, help="in the batch of N=8")
    chosen = parser.parse_args()
    if chosen.groups < 1:
        parser.error("--groups is at least 1")
    batch, groups = small(chosen.groups), large()
    covered, huge = coverage(chosen.groups)
    ours, numpy, *_, python = batch.values()
    met = {
        f"batch under {MOST_MS:g} ms": ours < MOST_MS,
        f"{LEAST_OVER_LOOP:g} x the Python loop": python >= LEAST_OVER_LOOP * ours,
        f"{LEAST_OVER_NUMPY:g} x NumPy": numpy >= LEAST_OVER_NUMPY * ours,
        f"a group of {LARGE_N} under {MOST_LARGE_MS:g} ms": max(groups.values()) < MOST_LARGE_MS,
        "strategy_coverage no slower than poly_epo": covered["strategy_coverage"] <= covered["poly_epo"],
        f"its group of {HUGE_N} under {MOST_LARGE_MS:g} ms": max(huge.values()) < MOST_LARGE_MS,
    }
    print("\n" + "; ".join(f"{name}: {'yes' if yes else 'NO'}" for name, yes in met.items()))
    raise SystemExit(int(not all(met.values())))


if __name__ == "__main__":
    main()
