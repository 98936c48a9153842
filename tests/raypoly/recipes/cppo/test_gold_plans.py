"""Plans that are given: behind the prompts that `tuple` samples behind, the same each time, and for puzzles alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from raypoly.analysis.evaluation.planned_strategy import planned_strategy
from raypoly.core.config import Config, WarmStartConfig
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Draft, Problem, Rollout, TestSuite
from raypoly.data import build_problem_set
from raypoly.data.puzzles import puzzle_of
from raypoly.data.puzzles.puzzle_solutions import STRATEGIES, render_solution
from raypoly.learner.supervised_examples import make_example
from raypoly.planning.devices import GIB, FreeResources
from raypoly.planning.preflight import check_config
from raypoly.recipes.cppo.given_plans import is_gold
from raypoly.recipes.cppo.plan_contract import read_plan
from raypoly.recipes.cppo.tuple_plans import solver_prompt
from raypoly.rollouts import scaffolds
from raypoly.rollouts.scaffolds import Ask
from raypoly.rollouts.scaffolds.run_scaffolds import check_first_asks, fit_problems, is_sampled, of_evaluations

SOURCE = build_problem_set(Config().problems)
PROBLEMS = SOURCE.splits["train"][:40]


def config_of(*overrides: str) -> Config:
    own = ["objective.name=supervised", "scaffold.name=gold_plans", "generator.max_tokens=96", "evaluate.every=0"]
    return load(None, [*own, *overrides], str)


def asks(*overrides: str, problems: Sequence[Problem] = PROBLEMS) -> list[tuple[Problem, Ask]]:
    scaffold = scaffolds.of_run(config_of(*overrides))
    return [(problem, ask) for problem in problems for ask in scaffold.ask(problem, (), 6)]


def plan_draft(text: str) -> Draft:
    nothing = np.zeros(1, np.int32)
    return Draft(Rollout(nothing, nothing, np.zeros(1, np.float32), text, "stop", 0, 0), "plan")


@pytest.mark.parametrize("methods", [1, 3, 4, 6])
def test_gold_plans_stand_behind_the_very_prompt_that_plans_are_sampled_behind(methods: int) -> None:
    tuples = scaffolds.build("tuple", methods=methods)
    for problem, ask in asks(f"scaffold.methods={methods}"):
        (sampled,) = tuples.ask(problem, (), methods)
        assert ask.prompt == sampled.prompt
        plan = read_plan(ask.text or "", methods)
        assert plan.keeps
        assert is_gold(puzzle_of(problem), plan.branches)


def test_replayed_solutions_are_right_and_behind_the_prompt_of_a_method_that_they_follow() -> None:
    tuples = scaffolds.build("tuple", methods=1)
    for problem, ask in asks("scaffold.replay=1", problems=PROBLEMS[:8]):
        method, puzzle = ask.prompt.partition("# Use this method: ")[2].partition("\n")[0], puzzle_of(problem)
        assert ask.prompt == tuples.ask(problem, [plan_draft(f"A: {method}")], 1)[0].prompt
        strategy = planned_strategy(method)
        assert ask.text in {render_solution(puzzle, strategy or "", random.Random(seed)) for seed in range(99)}
        assert strategy in STRATEGIES


def test_the_warm_start_shows_the_very_prompt_of_the_solver() -> None:
    config, puzzle = WarmStartConfig(planned=0.99), puzzle_of(PROBLEMS[0])
    for example in (make_example([puzzle], config, index) for index in range(8)):
        method = example.prompt.partition("# Use this method: ")[2].partition("\n")[0]
        assert example.prompt == solver_prompt(PROBLEMS[0], method)


def test_a_share_is_replayed() -> None:
    shares = [sum("Use this method" in ask.prompt for _, ask in asks(f"scaffold.replay={r}")) / 240 for r in (0, 0.5)]
    assert shares[0] == 0
    assert 0.4 < shares[1] < 0.6


def test_the_same_problem_has_the_same_rows_in_any_order_and_different_ones_by_place() -> None:
    assert asks("scaffold.replay=.5") == asks("scaffold.replay=.5")
    backwards = asks("scaffold.replay=.5", problems=PROBLEMS[::-1])
    assert sorted(backwards, key=repr) == sorted(asks("scaffold.replay=.5"), key=repr)
    texts = [ask.text for problem, ask in asks() if problem is PROBLEMS[0]]
    assert len(set(texts)) == len(texts)


def test_a_problem_that_is_no_puzzle_is_refused_with_a_way_out() -> None:
    other = Problem("two-sum", "Solve.", "f", TestSuite("calls", "[]"), source="rows.jsonl")
    with pytest.raises(UsageError, match=r"two-sum is no puzzle.*scaffold\.name=given") as refused:
        scaffolds.of_run(config_of()).ask(other, (), 4)
    assert "\n" not in str(refused.value)


def test_more_methods_than_strategies_are_refused() -> None:
    with pytest.raises(UsageError, match=r"scaffold\.methods=7 does not fit gold_plans"):
        scaffolds.of_run(config_of("scaffold.methods=7"))


def test_a_supervised_run_needs_no_engine_and_runs_no_test(tmp_path: Path) -> None:
    config = config_of()
    check_config(config, tmp_path / "run", FreeResources(memory=64 * GIB, disk=64 * GIB))
    fitted = fit_problems(SOURCE, config)
    check_first_asks(fitted, config)
    assert not is_sampled(config)
    assert {problem.tests.kind for problem in fitted.splits["train"]} == {"none"}
    assert fitted.splits["test"] == SOURCE.splits["test"]
    assert [type(it).__name__ for it in of_evaluations(config_of("evaluate.every=5")).values()] == ["Direct"]


def test_supervised_training_takes_no_scaffold_that_samples() -> None:
    with pytest.raises(UsageError, match=r"supervised trains with scaffold\.name=given, not with scaffold\.name=tuple"):
        scaffolds.of_run(config_of("scaffold.name=tuple"))
