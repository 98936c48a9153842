"""Changes that leave a program what it was: they change text, never what the text says."""

import ast
import random
from collections.abc import Callable

import pytest

from raypoly.commands.judge_audit import change_half
from raypoly.core.config import ScorerConfig
from raypoly.strategies.judge.gold import read_gold_groups
from raypoly.strategies.judge.program_groups import group_of_gold, observing
from raypoly.strategies.judge.program_transforms import CHANGES, LONGEST, keywords, renamed

NONE: frozenset[str] = frozenset()
TRICKY = '''from itertools import *
def outer(nums, k=1):
    """A docstring with nums in it.
    if nums: it is text
    """
    total = sum(nums); more = 2
    if k: \\
        total += 1
    def inner(sum, *, nums=nums):
        nonlocal total
        total += sum
        return [total for total in nums if total]
    text = f"{more} and {k!r}"
    count = lambda k: k + more
    return inner(total, nums=nums), max(nums, key=count), text, "total"
'''


def value(source: str) -> object:
    names: dict[str, Callable[..., object]] = {}
    exec(source, names)  # of the tests' own text
    return names["outer"]([3, 1, 2])


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("seed", range(5))
def test_a_tricky_program_is_changed_and_gives_what_it_gave(name: str, seed: int) -> None:
    other = CHANGES[name](TRICKY, random.Random(seed), NONE)
    assert other != TRICKY
    assert value(other) == value(TRICKY)


def test_names_that_others_use_stay_and_own_names_go() -> None:
    other = renamed(TRICKY, random.Random(0), NONE)
    assert "def outer(" in other
    assert "sum(" in other
    assert "nums=" in other
    assert "total +=" not in other
    kept = renamed("def f(a, b):\n    return a - b\n", random.Random(0), frozenset({"a"}))
    assert kept.startswith("def f(a, ")
    assert " b" not in kept


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("source", ["", "no program at all", "def f(:\n", "x = 1\x00", "#" * LONGEST + "\nx = 1\n"])
def test_what_is_no_program_or_too_long_comes_back_as_it_was(name: str, source: str) -> None:
    assert CHANGES[name](source, random.Random(0), NONE) == source


def test_a_program_that_looks_at_its_own_names_keeps_them() -> None:
    source = "def f(a):\n    b = a\n    return locals()['b']\n"
    assert renamed(source, random.Random(0), NONE) == source


def test_keywords_are_the_names_that_tests_pass_arguments_by() -> None:
    assert keywords("assert candidate(nums=[1], k = 2) == 3\n") == {"nums", "k"}


def test_half_of_a_group_is_changed_the_same_half_each_time_and_every_result_parses() -> None:
    for gold in read_gold_groups()[:10]:
        group = group_of_gold(gold)
        for name, change in CHANGES.items():
            other = change_half(group, name, change, NONE)
            assert other == change_half(group, name, change, NONE)
            differ = [new for old, new in zip(group.programs, other.programs, strict=True) if new != old]
            assert len(differ) <= len(group.programs) // 2
            for text in differ:
                ast.parse(text)


def test_changed_gold_programs_pass_and_fail_as_before() -> None:
    chosen = random.Random(20261121).sample(read_gold_groups(), 2)
    with observing(ScorerConfig(workers=2)) as observe:
        for name, change in CHANGES.items():
            variants = [change_half(group_of_gold(gold), name, change, keywords(gold.tests)) for gold in chosen]
            for seen, gold in zip(observe(variants), chosen, strict=True):
                assert tuple(verdict.passed for verdict in seen.verdicts) == gold.passes
