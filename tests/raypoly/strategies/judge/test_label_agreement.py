"""Measures of agreement: worked values, brute force, and what has to hold for any labelling."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raypoly.core.values import Labels
from raypoly.strategies.judge.label_agreement import (
    PairCounts,
    adjusted_rand,
    count_degenerates,
    count_pairs,
    ids_of,
    run_to_run,
)
from tests.support.worked_numbers import worked_cases

LABELLINGS = st.integers(2, 9).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 3), min_size=n, max_size=n) for _ in range(2)])
)


@pytest.mark.parametrize("case", worked_cases("clustering_agreement"))
def test_worked_agreements(case: Any) -> None:
    (said, gold), want = (np.array(case["input"][name], np.int32) for name in ("pred", "gold")), case["expected"]
    pairs = count_pairs(said, gold)
    found = {"pair_precision": pairs.precision, "pair_recall": pairs.recall, "pair_f1": pairs.f1}
    assert {**found, "ari": adjusted_rand(said, gold)} == pytest.approx(want)


def together(ids: list[int]) -> set[tuple[int, int]]:
    return {(i, j) for i, j in combinations(range(len(ids)), 2) if ids[i] == ids[j] != 0}


@pytest.mark.parametrize(
    ("one", "other", "value"),
    [
        ([1, 1, 2, 2], [1, 1, 2, 3], 4 / 7),
        ([1, 1, 2, 2], [2, 2, 1, 1], 1.0),
        ([1, 1, 2, 2], [1, 2, 1, 2], -0.5),
        # the ten objects of Yeung & Ruzzo (2001), table of overlaps [[1, 1, 0], [1, 2, 1], [0, 0, 4]]
        ([1, 1, 2, 2, 2, 2, 3, 3, 3, 3], [1, 2, 1, 2, 2, 3, 3, 3, 3, 3], 0.3125734430082256),
    ],
)
def test_the_adjusted_rand_index_has_its_published_values(one: list[int], other: list[int], value: float) -> None:
    assert adjusted_rand(one, other) == pytest.approx(value, abs=1e-15)


@pytest.mark.parametrize(
    ("one", "other", "value"),
    [
        ([1, 1, 1], [2, 2, 2], 1.0),
        ([1, 2, 3], [3, 1, 2], 1.0),
        ([1, 1, 1], [1, 2, 3], 0.0),
        ([1, 1, 1, 1], [1, 1, 2, 2], 0.0),
        ([1, 2, 3, 4], [1, 1, 2, 2], 0.0),
        ([1], [5], 1.0),
        ([], [], 1.0),
        ([0, 0, 0], [1, 2, 3], 1.0),
        ([0, 0, 0], [1, 1, 1], 0.0),
    ],
)
def test_one_cluster_and_all_singletons_have_a_value(one: list[int], other: list[int], value: float) -> None:
    assert adjusted_rand(one, other) == value


@given(LABELLINGS)
def test_agreement_is_that_of_the_textbook_formula_over_pairs(labellings: tuple[list[int], list[int]]) -> None:
    said, gold = labellings
    a, b, n = together(said), together(gold), len(said)
    assert count_pairs(said, gold) == PairCounts(len(a & b), len(a), len(b))
    expected = len(a) * len(b) / (n * (n - 1) / 2)
    room = (len(a) + len(b)) / 2 - expected
    assert adjusted_rand(said, gold) == pytest.approx((len(a & b) - expected) / room if room > 1e-9 else 1.0)


@given(LABELLINGS)
def test_names_of_clusters_and_the_order_of_arguments_mean_nothing(labellings: tuple[list[int], list[int]]) -> None:
    one, other = labellings
    renamed = [{0: 0, 1: 7, 2: 1, 3: 2}[label] for label in other]
    assert adjusted_rand(one, other) == adjusted_rand(other, one) == adjusted_rand(one, renamed)
    assert adjusted_rand(one, one) == 1


def test_merging_costs_precision_and_splitting_recall_counts_add_up_and_a_ratio_of_nothing_is_unknown() -> None:
    gold = [1, 1, 2, 2]
    assert (count_pairs([1, 1, 1, 1], gold).precision, count_pairs([1, 1, 1, 1], gold).recall) == (1 / 3, 1.0)
    assert (count_pairs([1, 1, 2, 3], gold).precision, count_pairs([1, 1, 2, 3], gold).recall) == (1.0, 0.5)
    assert count_pairs([1, 1, 2, 3], gold).f1 == pytest.approx(2 / 3)
    assert count_degenerates([0, 0, 1, 1, 0], [0, 1, 0, 1, 0]) == PairCounts(2, 3, 3)
    nothing = count_pairs([1, 2], [1, 2])
    assert (nothing.precision, nothing.recall, nothing.f1) == (None, None, None)
    assert nothing + PairCounts(1, 2, 4) == PairCounts(1, 2, 4)
    assert PairCounts(0, 0, 3).recall == PairCounts(0, 0, 3).f1 == 0


def test_agreement_from_run_to_run_is_the_mean_over_pairs_of_runs() -> None:
    runs = [[1, 1, 2, 2], [2, 2, 1, 1], [1, 1, 2, 3]]
    assert run_to_run(runs) == pytest.approx((1 + 4 / 7 + 4 / 7) / 3)
    with pytest.raises(ValueError, match="two runs"):
        run_to_run(runs[:1])


def test_labellings_of_different_length_are_refused() -> None:
    for measure in (adjusted_rand, count_pairs, count_degenerates):
        with pytest.raises(ValueError, match="not 2 and 3"):
            measure([1, 1], [1, 1, 1])


def test_an_unknown_strategy_is_never_compared_as_a_degenerate_one() -> None:
    degenerate = np.array([False, True])
    assert ids_of(Labels(np.array([3, 9], np.int32), degenerate, "j")).tolist() == [3, 0]
    with pytest.raises(ValueError, match="without a strategy"):
        ids_of(Labels(np.array([0, 0], np.int32), degenerate, "j"))
