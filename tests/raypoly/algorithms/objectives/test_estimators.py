"""What every objective's gradient is, by exact expectation over a softmax policy; and that the order means nothing.

The policy has four answers, all groups of N answers are gone through with their chances, and
E[sum_i A_i grad log pi(y_i)] is compared with the gradient of what the objective is for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.algorithms.objectives import Batch, Objective, build
from raypoly.algorithms.objectives.set_functions import SetConfig, SetObjective, Sets
from raypoly.core.values import Float64
from tests.raypoly.algorithms.objectives.judged_groups import Judged, shuffled

REWARDS, LABELS = np.array([1.0, 0.25, 0.25, 0.0]), np.array([1, 2, 3, 1])
LOGITS = np.array([0.2, -1.0, 0.5, 0.1])
CHANCES = np.exp(LOGITS) / np.exp(LOGITS).sum()
SCORES = np.eye(4) - CHANCES
"""Row a: d log pi(a) / d logits."""
N = 4


class Worth(SetObjective):
    """Of a pair: its best reward times its strategies."""

    needs = frozenset({"labels"})

    def score(self, sets: Sets) -> Float64:
        return sets.rewards_Kn.max(axis=1) * sets.strategies()


def of_pair(answers: Sequence[int]) -> float:
    return float(REWARDS[list(answers)].max() * len(set(LABELS[list(answers)])))


VARIANTS: list[dict[str, Any]] = [
    {},
    {"require_two": False},
    {"floor": 0.5},
    {"diversity_of": "correct"},
    {"floor": 0.25, "diversity_of": "correct"},
    {"blend": 0.5},
]
"""Of Poly-EPO."""


def polychromic(answers: Sequence[int], params: dict[str, Any]) -> float:
    """f(G) of one set by the definition."""
    of_all, index = params.get("diversity_of", "all") == "all", list(answers)
    strategies = len({LABELS[i] for i in index if of_all or REWARDS[i] > 0})
    diversity = 0.0 if params.get("require_two", True) and strategies < 2 else strategies / len(index)
    blend = params.get("blend", 0.0)
    polychrome = float(REWARDS[index].mean()) * max(diversity, params.get("floor", 0.0))
    return (1 - blend) * polychrome + blend * best(answers)


def best(answers: Sequence[int]) -> float:
    return float(REWARDS[list(answers)].max())


def covered(answers: Sequence[int]) -> float:
    """The best reward of each strategy, added up."""
    index = np.array(answers)
    return float(sum(REWARDS[index[LABELS[index] == c]].max() for c in set(LABELS[index])))


def gradient(worth: Callable[[Sequence[int]], float], size: int) -> Float64:
    """d E[worth of `size` independent answers] / d logits."""
    total = np.zeros(4)
    for answers in itertools.product(range(4), repeat=size):
        index = list(answers)
        total += CHANCES[index].prod() * worth(answers) * SCORES[index].sum(axis=0)
    return total


def estimated(objective: Objective) -> Float64:
    """E[sum_i A_i d log pi(y_i) / d logits] over all groups of N."""
    total = np.zeros(4)
    for answers in itertools.product(range(4), repeat=N):
        index = list(answers)
        known: dict[str, Any] = {"labels": LABELS[index]} if "labels" in objective.needs else {}
        total += CHANCES[index].prod() * objective.advantages(rewards=REWARDS[index], **known) @ SCORES[index]
    return total


@pytest.mark.parametrize(
    ("objective", "worth", "size", "scale"),
    [
        pytest.param(build("grpo"), best, 1, N - 1, id="Dr.GRPO"),
        pytest.param(build("rloo"), best, 1, N, id="RLOO"),
        pytest.param(build("pkpo", k=2, baseline="none"), best, 2, 1, id="PKPO"),
        pytest.param(build("pkpo", k=2, baseline="loo"), best, 2, 1, id="PKPO, loo"),
        pytest.param(build("pkpo", k=3, baseline="loo_minus_one"), best, 3, 1, id="PKPO, loo minus one"),
        pytest.param(build("best_minus_second"), best, N, 1, id="best minus second"),
        pytest.param(build("strategy_coverage", set_size=3), covered, 3, N / 3, id="strategy coverage: N/n"),
        pytest.param(build("strategy_coverage", set_size=4), covered, 4, 1, id="strategy coverage of the whole group"),
        pytest.param(
            build("strategy_coverage", set_size=3, baseline="mean"), covered, 3, N / 3 - 1, id="its mean: N/n - 1"
        ),
        pytest.param(Worth(SetConfig(set_size=2, reduction="sum")), of_pair, 2, 3, id="sets, sum: C(N-1, n)"),
        pytest.param(Worth(SetConfig(set_size=2, reduction="mean")), of_pair, 2, 1, id="sets, mean: N/n - 1"),
        pytest.param(Worth(SetConfig(set_size=2, reduction="unit")), of_pair, 2, 3, id="sets, unit: N - 1"),
        pytest.param(
            Worth(SetConfig(set_size=2, reduction="mean", baseline="leave_one_out")), of_pair, 2, 2, id="sets, loo: N/n"
        ),
        *(
            pytest.param(
                build("poly_epo", set_size=2, **params),
                partial(polychromic, params=params),
                2,
                3,
                id=f"Poly-EPO {params}",
            )
            for params in VARIANTS
        ),
    ],
)
def test_the_gradient_is_that_of_what_it_is_for(
    objective: Objective, worth: Callable[[Sequence[int]], float], size: int, scale: float
) -> None:
    np.testing.assert_allclose(estimated(objective), scale * gradient(worth, size), atol=1e-12)


@pytest.mark.parametrize("reduction", ["sum", "mean", "unit"])
def test_sets_of_one_with_their_reward_are_dr_grpo(reduction: str) -> None:
    """Poly-EPO without require_two: one rollout is one strategy, so f = r."""
    rewards, labels = [0.0, 1.0, 0.25, -2.0, 1.0], [1, 1, 2, 3, 3]
    got = build("poly_epo", set_size=1, require_two=False, reduction=reduction).advantages(
        rewards=rewards, labels=labels
    )
    np.testing.assert_allclose(got, build("grpo").advantages(rewards=rewards), atol=1e-15)


ORDERED: list[tuple[str, dict[str, Any]]] = [
    ("poly_epo", {"set_size": 1}),
    ("poly_epo", {"set_size": 1, "require_two": False, "floor": 0.5}),
    ("poly_epo", {"set_size": 1, "diversity_of": "correct", "reduction": "unit"}),
    ("poly_epo", {"set_size": 1, "blend": 0.5}),
    ("strategy_coverage", {"set_size": 1}),
    ("strategy_coverage", {"set_size": 1, "baseline": "mean"}),
    ("grpo", {}),
    ("grpo", {"std": "sample"}),
    ("grpo", {"std": "population"}),
    ("rloo", {}),
    ("darling", {}),
    ("darling", {"floor": 0.1, "partition": "correct"}),
    ("uniqueness_aware", {}),
    ("uniqueness_aware", {"apply_to": "positive", "alpha": 0.5}),
    ("grpo_diversity", {"std": "sample"}),
    ("pkpo", {"k": 2}),
    ("passk_training", {"k": 1}),
    ("best_minus_second", {}),
    (f"{__name__}:Worth", {"set_size": 1}),
]


@pytest.mark.parametrize(("name", "params"), ORDERED, ids=str)
@settings(max_examples=40)
@given(shuffled(), st.data())
def test_the_order_of_rollouts_means_nothing(
    name: str, params: dict[str, Any], both: tuple[Judged, list[int]], data: st.DataObject
) -> None:
    group, order = both
    if "set_size" in params:
        largest = len(order) - 1 if "floor" not in params else min(2, len(order) - 1)
        params = params | {"set_size": data.draw(st.integers(1, largest))}
    if "k" in params:
        params = params | {"k": data.draw(st.integers(params["k"], len(order) - (name == "passk_training")))}
    objective = build(name, **params)
    np.testing.assert_allclose(
        group.ordered(order).advantages(objective), group.advantages(objective)[order], rtol=1e-12, atol=1e-12
    )


@given(st.permutations(range(3)), st.sampled_from(["none", "group"]))
def test_the_order_of_groups_and_rollouts_means_nothing_to_what_whitens_a_step(order: list[int], baseline: str) -> None:
    rewards, lengths = [[1.0, 0.0, 0.5], [0.0, 0.0, 1.0], [0.25, 1.0, 0.0]], [[3, 1, 7], [2, 2, 5], [1, 9, 4]]
    objective = build("reinforce_plus_plus", baseline=baseline)

    def finished(groups: list[int], rollouts: list[int]) -> Float64:
        raw = [objective.advantages(rewards=[rewards[g][i] for i in rollouts]) for g in groups]
        return np.array(objective.finish(Batch.of(raw, [[lengths[g][i] for i in rollouts] for g in groups])))

    whole = finished([0, 1, 2], [0, 1, 2])
    np.testing.assert_allclose(finished(order, [2, 0, 1]), whole[order][:, [2, 0, 1]], atol=1e-12)
