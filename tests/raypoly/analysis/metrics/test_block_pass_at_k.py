"""pass@k of attempts in blocks: worked numbers, and the mean over draws."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raypoly.analysis.metrics.block_pass_at_k import Select, block_ks, block_pass_at_k
from raypoly.analysis.metrics.pass_at_k import ks, pass_at_k
from tests.support.worked_numbers import worked_cases

SELECTS: tuple[Select, ...] = ("first", "last", "random")
PASSED = [False, True, False, False, False, False, True, True, False, False, False, True]


@pytest.mark.parametrize("case", worked_cases("pass_at_k_of_blocks", "cppo"))
def test_worked_numbers(case: Any) -> None:
    passed = list(itertools.chain(*case["input"]["outcomes"]))
    for select, values in case["expected"].items():
        for k, value in values.items():
            assert block_pass_at_k(passed, case["input"]["block"], int(k), select) == pytest.approx(value)


@pytest.mark.parametrize("select", SELECTS)
@settings(max_examples=50, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=16))
def test_blocks_of_one_are_independent_attempts(select: Select, passed: list[bool]) -> None:
    for k in range(1, len(passed) + 1):
        assert block_pass_at_k(passed, 1, k, select) == pass_at_k(len(passed), sum(passed), k)


def test_random_is_the_mean_over_all_choices_within_a_block() -> None:
    blocks = [PASSED[:6], PASSED[6:]]
    for k in range(1, 6):
        draws = [any(block[i] for i in places) for block in blocks for places in itertools.combinations(range(6), k)]
        assert block_pass_at_k(PASSED, 6, k, "random") == pytest.approx(sum(draws) / len(draws))


def test_whole_blocks_are_the_mean_over_all_draws_of_blocks() -> None:
    blocks = [PASSED[:2], PASSED[2:4], PASSED[4:6], PASSED[6:8], PASSED[8:10], PASSED[10:]]
    for count in range(1, 7):
        draws = [any(map(any, drawn)) for drawn in itertools.combinations(blocks, count)]
        for select in SELECTS:
            assert block_pass_at_k(PASSED, 2, 2 * count, select) == pytest.approx(sum(draws) / len(draws))


def test_the_order_within_a_block_counts_below_the_block_alone() -> None:
    assert block_pass_at_k([1, 0, 0, 0, 0, 1], 3, 2) == 0.5
    assert block_pass_at_k([1, 0, 0, 0, 0, 1], 3, 2, "last") == 0.5
    assert block_pass_at_k([1, 0, 0, 1, 0, 0], 3, 2, "last") == 0.0
    assert block_pass_at_k([1, 0, 0, 1, 0, 0], 3, 3, "last") == 1.0


@pytest.mark.parametrize("k", [0, -4, 5, 6, 7, 9, 16])
def test_another_k_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k}"):
        block_pass_at_k(PASSED, 4, k)


@pytest.mark.parametrize(("samples", "block"), [(12, 5), (12, 0), (0, 1), (3, 4)])
def test_a_part_of_a_block_is_refused(samples: int, block: int) -> None:
    with pytest.raises(ValueError, match="whole number of blocks"):
        block_pass_at_k([True] * samples, block, 1)
    with pytest.raises(ValueError, match="whole number of blocks"):
        block_ks(samples, block)


@pytest.mark.parametrize(
    ("samples", "block", "shown"),
    [
        (20, 4, [1, 2, 4, 8, 16]),
        (4, 4, [1, 2, 4]),
        (12, 3, [1, 2, 3, 6, 12]),
        (16, 16, [1, 2, 4, 8, 16]),
        (12, 6, [1, 2, 4, 6, 12]),
    ],
)
def test_the_ks_that_are_shown(samples: int, block: int, shown: list[int]) -> None:
    assert block_ks(samples, block) == shown
    assert all(0 <= block_pass_at_k([True] * samples, block, k) <= 1 for k in shown)


def test_blocks_of_one_show_the_usual_ks() -> None:
    assert [block_ks(samples, 1) for samples in range(1, 70)] == [ks(samples) for samples in range(1, 70)]
