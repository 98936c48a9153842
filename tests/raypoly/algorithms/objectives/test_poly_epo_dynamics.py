"""Where Poly-EPO's policy comes to rest, and how much it learns by pass rate: expectations over all groups of eight."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from raypoly.algorithms.objectives import build
from raypoly.algorithms.objectives.set_functions import ClosedFormObjective
from raypoly.core.values import Float64

N = 8


def groups(answers: Sequence[tuple[float, int]], chances: Sequence[float]) -> tuple[dict[str, Float64], Float64]:
    """All groups of N of these (reward, strategy), rewards and labels [B, N], and the chance of each, [B]."""
    drawn = list(itertools.combinations_with_replacement(range(len(answers)), N))
    counts = np.array([np.bincount(group, minlength=len(answers)) for group in drawn])
    orders = [math.factorial(N) / math.prod(map(math.factorial, row)) for row in counts.tolist()]
    values = np.array(answers)[np.array(drawn)]
    return {"rewards": values[..., 0], "labels": values[..., 1]}, orders * np.prod(np.power(chances, counts), axis=1)


def push(objective: ClosedFormObjective, right: int, wrong_share: float) -> float:
    """The expected gradient in the logit of the wrong answer, beside `right` equally likely right strategies."""
    answers = [(1.0, c) for c in range(1, right + 1)] + [(0.0, right + 1)]
    given, chance = groups(answers, [*[(1 - wrong_share) / right] * right, wrong_share])
    scores = (given["rewards"] == 0) - wrong_share
    return float(chance @ (objective.batch(**given) * scores).sum(axis=1))


@pytest.mark.parametrize(
    ("params", "right", "share"),
    [({}, 1, 0.370), ({}, 2, 0.1036), ({"blend": 0.5}, 1, 0.3194), ({"blend": 0.5}, 2, 0.1020)],
)
def test_a_policy_comes_to_rest_with_wrong_samples_where_few_right_strategies_are_known(
    params: dict[str, Any], right: int, share: float
) -> None:
    """By hand, for one right strategy: E f = ((1 - w) - (1 - w)^4)/2 is largest at w = 1 - (1/4)^(1/3) = .370."""
    objective: Any = build("poly_epo", set_size=4, **params)
    assert push(objective, right, share - 0.001) > 0 > push(objective, right, share + 0.001)
    assert push(objective, right, 0.01) > 0


@pytest.mark.parametrize(
    ("name", "params", "known"),
    [
        ("poly_epo", {}, (3, 4)),
        ("poly_epo", {"blend": 0.5}, (3, 4)),
        ("poly_epo", {"diversity_of": "correct"}, (2, 3)),
        ("strategy_coverage", {}, (1, 2, 3)),
        ("strategy_coverage", {"baseline": "mean"}, (1, 2, 3)),
    ],
)
def test_elsewhere_wrong_samples_only_become_fewer(name: str, params: dict[str, Any], known: tuple[int, ...]) -> None:
    for right, share in itertools.product(known, (0.01, 0.1, 0.4)):
        objective: Any = build(name, set_size=4, **params)
        assert push(objective, right, share) < 0


def test_a_wrong_novelty_gets_more_than_a_right_loop() -> None:
    """Four right loops, two right whiles, a wrong table, and a broken program that is no attempt."""
    group = {"rewards": [1] * 6 + [0, 0], "labels": [1] * 4 + [2, 2, 3, 100]}
    got = build("poly_epo").advantages(**group)
    np.testing.assert_allclose(got, [-0.4375] * 4 + [2, 2, 1.125, -3.375], atol=1e-12)
    covered = build("strategy_coverage").advantages(**group)
    np.testing.assert_allclose(covered, [4 / 35] * 4 + [4 / 7] * 2 + [0, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("poly_epo", {"set_size": 4}, [0.384, 0.742, 1, 1.161, 1.253]),
        ("grpo", {}, [0.484, 0.866, 1, 0.866, 0.348]),
        ("pkpo", {"k": 4}, [1.468, 1.751, 1, 0.285, 0.007]),
        ("strategy_coverage", {"set_size": 4}, [0.571, 0.930, 1, 0.948, 0.885]),
    ],
)
def test_what_a_pass_rate_weighs(name: str, params: dict[str, Any], expected: list[float]) -> None:
    """RMS advantage over that at pass rate 1/2; three strategies of chance .6, .3 and .1 whatever the reward."""
    answers = list(itertools.product((1.0, 0.0), (1, 2, 3)))
    objective, found = build(name, **params), []
    for p in (1 / 16, 1 / 4, 1 / 2, 3 / 4, 31 / 32):
        given, chance = groups(answers, [side * share for side in (p, 1 - p) for share in (0.6, 0.3, 0.1)])
        if not found:
            each = [{key: of[row] for key, of in given.items()} for row in range(len(chance))]
            squares = np.array([(objective.advantages(**group) ** 2).mean() for group in each])
        found.append(math.sqrt(chance @ squares))
    np.testing.assert_allclose(np.array(found) / found[2], expected, atol=6e-4)
