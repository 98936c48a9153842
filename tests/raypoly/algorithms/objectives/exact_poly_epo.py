"""Poly-EPO by its definition, in exact rationals."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

Group = tuple[list[Fraction], list[int], int, bool, Fraction | None, bool, Fraction]
"""Rewards, raw labels (0 and 100 are degenerate), n, require_two, floor, whether diversity is that of correct
rollouts, blend."""


def parameters(group: Group) -> dict[str, Any]:
    """Those of `build("poly_epo", ...)`."""
    _, _, n, require_two, floor, of_correct, blend = group
    return {
        "set_size": n,
        "require_two": require_two,
        "floor": None if floor is None else float(floor),
        "diversity_of": "correct" if of_correct else "all",
        "blend": float(blend),
    }


def conditional_means(group: Group) -> list[Fraction]:
    """Mean over the sets with i of f(G) - mean f, by the definition."""
    rewards, labels, n, require_two, floor, of_correct, blend = group

    def f(members: tuple[int, ...]) -> Fraction:
        counted = [i for i in members if not of_correct or rewards[i] > 0]
        strategies = len({labels[i] for i in counted} - {0, 100})
        diversity = Fraction(0) if require_two and strategies <= 1 else Fraction(strategies, n)
        if floor is not None:
            diversity = max(diversity, floor)
        polychromic = sum((rewards[i] for i in members), Fraction(0)) / n * diversity
        return (1 - blend) * polychromic + blend * max(rewards[i] for i in members)

    scores = {members: f(members) for members in itertools.combinations(range(len(rewards)), n)}
    baseline = sum(scores.values(), Fraction(0)) / len(scores)
    with_i = [[score for members, score in scores.items() if i in members] for i in range(len(rewards))]
    return [sum(found, Fraction(0)) / len(found) - baseline for found in with_i]


@st.composite
def groups(draw: st.DrawFn) -> Group:
    size = draw(st.integers(2, 10))
    reward = draw(st.sampled_from([st.integers(0, 1), st.integers(-4, 4)]))
    rewards = [Fraction(value, 4) for value in draw(st.lists(reward, min_size=size, max_size=size))]
    labels = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 100]), min_size=size, max_size=size))
    n, require_two = draw(st.integers(1, size - 1)), draw(st.booleans())
    sixteenths = draw(st.none() | st.integers(1, 16))
    floor = (
        None
        if sixteenths is None
        else min(Fraction(1), Fraction(sixteenths, 16) * Fraction(2 if require_two else 1, n))
    )
    blend = draw(st.just(Fraction(0)) | st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(1)]))
    return rewards, labels, n, require_two, floor, draw(st.booleans()), blend
