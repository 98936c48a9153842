"""Plans of puzzles are what they are said to be: right or wrong, well-formed, short; each method is of one strategy."""

from __future__ import annotations

import random
from functools import cache
from itertools import product

import pytest

from raypoly.analysis.evaluation.planned_strategy import planned_strategy
from raypoly.data.puzzles.puzzle_language import Puzzle, all_puzzles, method, wordings
from raypoly.data.puzzles.puzzle_solutions import STRATEGIES
from raypoly.learner.supervised_examples import tokenizer_texts
from raypoly.learner.tiny_model import build_tokenizer
from raypoly.recipes.cppo.given_plans import KINDS, gold_tuple, is_gold, wrong_tuple
from raypoly.recipes.cppo.plan_contract import Plan, read_plan

PUZZLES = all_puzzles()
SIZES = range(2, len(STRATEGIES) + 1)


@cache
def wrong(kind: str) -> list[tuple[Puzzle, Plan]]:
    rng = random.Random(7)
    return [(it, read_plan(wrong_tuple(it, kind, rng, size), size)) for it, size in product(PUZZLES[::3], SIZES)]


def strategies(plan: Plan) -> list[str | None]:
    return [planned_strategy(said) for said in plan.methods]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_is_read_back_from_each_of_its_three_wordings(strategy: str) -> None:
    for puzzle in PUZZLES:
        said = wordings(puzzle, strategy)
        assert len(set(said)) == 3
        assert {planned_strategy(text) for text in said} == {strategy}
        assert method(puzzle, strategy, random.Random(1)) in said


@pytest.mark.parametrize("methods", range(1, len(STRATEGIES) + 1))
def test_a_gold_tuple_keeps_the_contract_with_different_strategies(methods: int) -> None:
    for seed, puzzle in enumerate(PUZZLES):
        plan = read_plan(gold_tuple(puzzle, methods, random.Random(seed)), methods)
        assert plan.keeps
        assert len(set(strategies(plan))) == methods
        assert is_gold(puzzle, plan.branches)


def test_there_are_no_more_methods_than_strategies() -> None:
    with pytest.raises(ValueError, match="larger than population"):
        gold_tuple(PUZZLES[0], len(STRATEGIES) + 1, random.Random(0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_tuple_keeps_the_contract_and_is_not_gold(kind: str) -> None:
    assert all(plan.keeps and not is_gold(puzzle, plan.branches) for puzzle, plan in wrong(kind))


def test_a_reworded_tuple_has_one_strategy_twice() -> None:
    assert all(len(set(strategies(plan))) == len(plan.branches) - 1 for _, plan in wrong("reworded"))
    assert all(own_methods(puzzle, plan) == len(plan.branches) for puzzle, plan in wrong("reworded"))


def own_methods(puzzle: Puzzle, plan: Plan) -> int:
    """How many of a plan's methods are of this puzzle."""
    return sum(said in wordings(puzzle, strategy) for said in plan.methods for strategy in STRATEGIES)


@pytest.mark.parametrize("kind", ["other", "empty_talk"])
def test_one_method_or_all_are_of_another_puzzle_or_say_nothing(kind: str) -> None:
    for puzzle, plan in wrong(kind):
        assert own_methods(puzzle, plan) in (0, len(plan.branches) - 1)
        known = {it for it in strategies(plan) if it is not None}
        assert len(known) == (len(plan.branches) if kind == "other" else own_methods(puzzle, plan))


def test_a_tuple_with_code_holds_an_expression_that_computes_the_answer() -> None:
    for puzzle, plan in wrong("code"):
        (coded,) = [said for said in plan.methods if "(" in said]
        assert len(set(strategies(plan))) == len(plan.branches)
        if planned_strategy(coded) == "comprehension" and puzzle.source.name == "up_to":
            assert eval(coded.partition(", ")[2], {"n": 9}) == puzzle.answer(9)


def test_plans_repeat_by_seed() -> None:
    for kind in KINDS:
        assert len({wrong_tuple(PUZZLES[5], kind, random.Random(4)) for _ in range(2)}) == 1
    assert len({gold_tuple(PUZZLES[5], 4, random.Random(seed)) for seed in range(50)}) > 45


def test_a_plan_of_four_methods_fits_the_tiny_models_tokens() -> None:
    tokenizer = build_tokenizer(tokenizer_texts(PUZZLES, planned=True))
    rng = random.Random(2)
    lengths = [len(tokenizer(gold_tuple(puzzle, 4, rng)).input_ids) for puzzle in PUZZLES]
    assert 56 < sum(lengths) / len(lengths) < 68
    assert max(lengths) < 96
