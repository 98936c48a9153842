"""Votes over what attempts answer."""

import itertools
from typing import Any

import pytest

from raypoly.analysis.metrics.majority_choice import MOST_VOTES, maj_at_k, majority
from tests.support.worked_numbers import worked_cases


@pytest.mark.parametrize("case", worked_cases("self_consistency", "cppo"))
def test_worked_cases(case: Any) -> None:
    assert majority(case["input"]["signatures"]) == case["expected"]["chosen"]


@pytest.mark.parametrize(
    ("signatures", "chosen"),
    [
        (["x", "y", "y"], 1),
        (["y", "x", "x", "y"], 0),
        ([None, "x", "y", None, "y", "x"], 1),
        (["x", None, None, None], 0),
        ([None, None], None),
        ([], None),
        (["", "", "x"], 0),
        ([(1, 2), (2, 1), (2, 1)], 1),
    ],
)
def test_the_first_of_the_largest_class(signatures: list[Any], chosen: int | None) -> None:
    assert majority(signatures) == chosen


def test_with_one_vote_the_majority_is_the_attempt_itself() -> None:
    assert maj_at_k(["x", "x", "y", None], [True, True, False, True], 1) == 0.5


def test_with_all_votes_the_choice_is_one() -> None:
    signatures, passed = ["x", "y", "y", "z"], [True, False, False, True]
    assert maj_at_k(signatures, passed, 4) == 0.0
    assert maj_at_k(signatures, [not each for each in passed], 4) == 1.0


def test_the_mean_over_all_choices_in_order() -> None:
    signatures = ["x", "y", None, "y", "z", "x", "z"]
    passed = [True, False, False, False, True, True, True]
    for k in range(1, 8):
        votes = []
        for places in itertools.combinations(range(7), k):
            chosen = majority([signatures[place] for place in places])
            votes.append(chosen is not None and passed[places[chosen]])
        assert maj_at_k(signatures, passed, k) == pytest.approx(sum(votes) / len(votes))


def test_nobody_votes_and_nothing_passes() -> None:
    assert maj_at_k([None] * 4, [True] * 4, 2) == 0.0


def test_many_sets_are_drawn_the_same_each_time_and_near_the_truth() -> None:
    """Of 24 attempts, 15 agree: 5 votes choose them where at least three of the five do, or a tie goes their way."""
    signatures = ["x"] * 15 + ["y"] * 9
    passed = [True] * 15 + [False] * 9
    sets = list(itertools.combinations(range(24), 5))
    truth = sum(sum(place < 15 for place in places) >= 3 for places in sets) / len(sets)
    assert len(sets) > MOST_VOTES
    drawn = maj_at_k(signatures, passed, 5)
    assert drawn == maj_at_k(signatures, passed, 5) == pytest.approx(truth, abs=0.01)
    assert drawn != maj_at_k(signatures, passed, 5, seed=1)


@pytest.mark.parametrize(("passed", "k"), [([True] * 3, 0), ([True] * 3, 4), ([True] * 2, 1)])
def test_what_cannot_be_counted_is_refused(passed: list[bool], k: int) -> None:
    with pytest.raises(ValueError, match=f"maj@{k} needs"):
        maj_at_k(["x"] * 3, passed, k)
