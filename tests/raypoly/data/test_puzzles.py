"""What the puzzles promise: right solutions in six strategies, fair splits, and budgets that none fits all of."""

from __future__ import annotations

import ast
import json
import random
import sys
from collections import Counter
from functools import cache
from typing import Literal

import pytest

from raypoly.core.config import ProblemsConfig, ScorerConfig
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem
from raypoly.data import ProblemSet, build_problem_set
from raypoly.data.puzzles import PROFILES, STEP_LIMIT, drawn_shares, puzzle_of
from raypoly.data.puzzles.puzzle_solutions import STRATEGIES, render_mistake, render_solution
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier.sandbox import Sandbox
from tests.raypoly.data.step_counter import compile_body, run

WRONG = 100
"""Wrong solutions that are run; their steps are counted, which is slow."""


@cache
def problem_set(seed: int = 0, budgets: bool | Literal["drawn"] = True) -> ProblemSet:
    return build_problem_set(ProblemsConfig(seed=seed, budgets=budgets))


@cache
def everything() -> tuple[Problem, ...]:
    return tuple(p for split in problem_set().splits.values() for p in split)


def passes(problem: Problem, body: str, budgets: bool = True) -> tuple[bool, float]:
    """Whether a body passes, and the least ratio between a budget and what was used of it (either way round)."""
    function = compile_body(problem.prelude, problem.prefix + body)
    margin = float("inf")
    for test in json.loads(problem.tests.source):
        result, counts = run(function, test["args"])
        assert result == test["expected"], (problem.prompt, body, test)
        for name, limit in (test["budget"] or {}).items() if budgets else ():
            used = max(getattr(counts, name), 0.5)
            if limit > 1:  # one frame or two: there is nothing in between
                margin = min(margin, max(used / limit, limit / used))
            if used > limit:
                return False, margin
    return True, margin


def test_there_are_900_problems_and_no_two_of_all_splits_are_alike() -> None:
    assert len(everything()) >= 900
    assert len(problem_set().splits["validation"]) == len(problem_set().splits["test"]) == 64
    assert len({p.prompt for p in everything()}) == len({p.id for p in everything()}) == len(everything())


def test_the_same_seed_gives_the_same_set_and_another_seed_another() -> None:
    assert build_problem_set(ProblemsConfig(seed=0)).hash == problem_set().hash
    assert build_problem_set(ProblemsConfig(seed=1)).hash != problem_set().hash
    assert problem_set().hash == "4ba7d3f09bcee1609fb608823b74809ad6e50270b4ef679584ccd250e718357d"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="its plain counter sees comprehensions of Python 3.11 alone")
def test_every_problem_is_solved_by_its_profiles_survivors_and_by_no_other_strategy() -> None:
    survivors = {profile.name: profile.survivors for profile in PROFILES}
    least = float("inf")
    for problem in everything():
        fits = set()
        for strategy in STRATEGIES:
            ok, margin = passes(problem, render_solution(puzzle_of(problem), strategy, random.Random(problem.id)))
            least = min(least, margin)
            fits |= {strategy} if ok else set()
            assert ok == (strategy in survivors[problem.metadata["budget"]]), (problem.prompt, strategy)
        assert len(fits) >= 3
    assert least > 1.1


def test_the_sandbox_agrees_on_verdict_and_strategy() -> None:
    survivors = {profile.name: profile.survivors for profile in PROFILES}
    with Sandbox(ScorerConfig(), StrategyEvidence()) as sandbox:
        for problem in problem_set().splits["test"][:12]:
            for strategy in STRATEGIES:
                body = render_solution(puzzle_of(problem), strategy, random.Random(problem.id))
                verdict = sandbox.score(problem, problem.prefix + body)
                assert verdict.passed == (strategy in survivors[problem.metadata["budget"]]), verdict.detail
                assert verdict.evidence is not None
                assert verdict.evidence.strategy == strategy


def test_without_budgets_every_strategy_passes_everything() -> None:
    for problem in problem_set(budgets=False).splits["test"]:
        assert all(test["budget"] == STEP_LIMIT for test in json.loads(problem.tests.source))
        for strategy in STRATEGIES:
            assert passes(problem, render_solution(puzzle_of(problem), strategy, random.Random(1)))[0]


def test_the_best_single_strategy_solves_seven_tenths_of_each_split() -> None:
    survivors = {profile.name: profile.survivors for profile in PROFILES}
    for problems in problem_set().splits.values():
        for strategy in STRATEGIES:
            share = sum(strategy in survivors[p.metadata["budget"]] for p in problems) / len(problems)
            assert share <= 0.75
        loops = sum("for" in survivors[p.metadata["budget"]] for p in problems) / len(problems)
        assert loops == pytest.approx(0.70, abs=0.02)


def test_drawn_budgets_have_the_seed_s_own_shares_alike_in_all_splits() -> None:
    for seed in range(4):
        shares = drawn_shares(seed)
        assert sum(shares) == pytest.approx(1.0)
        for problems in problem_set(seed, "drawn").splits.values():
            found = Counter(problem.metadata["budget"] for problem in problems)
            for profile, share in zip(PROFILES, shares, strict=True):
                assert abs(found[profile.name] - share * len(problems)) <= 1
    loops = [sum(drawn_shares(seed)[1:]) for seed in range(2000)]
    assert (min(loops) < 0.1, max(loops) > 0.9, sum(loops) / len(loops)) == (True, True, pytest.approx(0.75, abs=0.02))


def test_the_prompt_says_nothing_of_the_budget() -> None:
    """Two seeds give one prompt different budgets, and the prompt stays the same text."""
    first = {p.prompt: p.metadata["budget"] for p in everything()}
    other = build_problem_set(ProblemsConfig(seed=1))
    second = {p.prompt: p.metadata["budget"] for split in other.splits.values() for p in split}
    assert first.keys() == second.keys()
    assert 0.2 < sum(first[prompt] == second[prompt] for prompt in first) / len(first) < 0.4


def test_wrong_solutions_are_wrong_nearly_always() -> None:
    rng, outcomes = random.Random(0), Counter[str]()
    for problem in everything()[:WRONG]:
        body = render_mistake(puzzle_of(problem), rng.choice(STRATEGIES), rng)
        try:
            ast.parse(problem.prefix + body)
        except SyntaxError:
            outcomes["broken"] += 1
            continue
        try:
            passes(problem, body, budgets=False)
        except Exception as error:  # noqa: BLE001 - a wrong program may raise anything, a wrong result included
            outcomes["wrong" if isinstance(error, AssertionError) else "raises"] += 1
        else:
            outcomes["right"] += 1
    assert outcomes["right"] < 0.12 * WRONG, outcomes
    assert outcomes["broken"] > 0.1 * WRONG, outcomes


def test_split_sizes_that_leave_no_training_problem_are_refused() -> None:
    with pytest.raises(UsageError, match=r"problems\.test"):
        build_problem_set(ProblemsConfig(validation=500, test=500))
