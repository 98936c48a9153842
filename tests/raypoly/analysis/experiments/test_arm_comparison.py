"""Means, ranges and differences are of what was measured, and of runs that can be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raypoly.analysis.experiments.arm_comparison import SeedSpread, compare_arms
from raypoly.analysis.experiments.run_result import RunResult, ScaffoldCosts
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.analysis.reports.comparison_tables import comparison_tables, comparison_text, cost_table
from tests.raypoly.analysis.experiments.made_experiments import made_result as result
from tests.raypoly.analysis.experiments.test_measured_differences import drawn
from tests.raypoly.analysis.experiments.test_measured_differences import result as by_problem


def test_a_mean_is_of_the_finished_runs_and_a_range_is_of_the_same() -> None:
    (compared,) = compare_arms(
        [result("a", 0, 0.5), result("a", 1, 0.8), result("a", 2, 0.9, finished=False), result("b", 0, None)]
    )
    a, b = compared.arms
    assert a.after("8") == SeedSpread(0.65, 0.5, 0.8, 2, pytest.approx(0.3 / 2**0.5))
    assert (a.planned, len(a.runs)) == (3, 2)
    assert b.after("8") is None, "what was not measured is no number"


def test_differences_pair_runs_of_one_seed() -> None:
    """b is better by .1 with every seed, though its mean without pairs would say .25."""
    (compared,) = compare_arms([result("a", 0, 0.4), result("a", 1, 0.7), result("b", 1, 0.8), result("b", 2, 0.9)])
    difference = compared.difference(compared.arms[1], "strategies")
    assert len(compared.pairs(compared.arms[1])) == 1
    assert difference is not None
    assert (round(difference.mean, 9), difference.count) == (0.1, 1)


def test_runs_on_other_problems_or_from_another_policy_are_no_pair() -> None:
    (compared,) = compare_arms(
        [result("a", 0, 0.4), result("control", 0, 0.9, before=0.6, start='{"problems.budgets": false}')]
    )
    control = compared.arms[1]
    assert not compared.pairs(control)
    assert compared.difference(control, "1") is None
    assert [(start.arms, start.before("1")) for start in compared.starts] == [
        (["a"], SeedSpread(0.2, 0.2, 0.2, 1)),
        (["control"], SeedSpread(0.6, 0.6, 0.6, 1)),
    ]


def test_how_rollouts_changed_is_of_steps_that_do_not_overlap_and_names_how_many_runs_have_it() -> None:
    def with_curve(arm: str, seed: int, steps: int) -> RunResult:
        return replace(result(arm, seed), curves={"response_length": [(step, float(step)) for step in range(steps)]})

    runs = [with_curve("long", 0, 30), with_curve("short", 0, 12), with_curve("one", 0, 1), with_curve("some", 0, 40)]
    (compared,) = compare_arms([*runs, result("some", 1)])
    rows = comparison_tables(compared)["training_rollouts"].rows
    assert rows == [
        ("long", "4.5 -> 24.5"),
        ("short", "2.5 -> 8.5"),
        ("one", "0 -> 0"),
        ("some", "4.5 -> 34.5 (1 of 2 runs)"),
    ]


def test_where_arms_began_counts_each_seed_once() -> None:
    (compared,) = compare_arms([result(arm, seed, 0.5, before=0.2 + seed) for arm in "abc" for seed in (0, 1)])
    (start,) = compared.starts
    assert start.arms == ["a", "b", "c"]
    assert start.before("16") == SeedSpread(0.7, 0.2, 1.2, 2, pytest.approx(0.5**0.5))


def test_arms_of_other_lengths_are_compared_apart() -> None:
    long, short = compare_arms([result("a", 0, 0.5), result("b", 0, 0.4, steps=20), result("c", 0, 0.3, steps=20)])
    assert ([arm.name for arm in long.arms], [arm.name for arm in short.arms]) == (["a"], ["b", "c"])
    difference = short.difference(short.arms[1], "4")
    assert difference is not None
    assert round(difference.mean, 9) == -0.1


def test_a_run_that_ended_at_a_plateau_is_named() -> None:
    whole = [result(arm, 0) for arm in ("grpo", "poly_epo")]
    (comparison,) = compare_arms(whole)
    assert "plateau" not in comparison_text(comparison)
    (comparison,) = compare_arms([whole[0], replace(whole[1], done=40)])
    assert "Ended early, at a plateau: poly_epo-s0 after 40 steps." in comparison_text(comparison)


TUPLE = {
    "scaffold": "tuple",
    "decoded_tokens": {"plan": 80.0, "solve": 320.0},
    "pass_per_10k": {"1": 50.0, "4": 25.0},
    "duplicates": 0.25,
    "followed": 0.9,
    "surface_diversity": 0.8,
}


def counts(tokens: tuple[int | None, ...]) -> ProblemCounts:
    size = len(tokens)
    ids, zeros = tuple(f"p{i}" for i in range(size)), (0,) * size
    return ProblemCounts(ids, (8,) * size, (4,) * size, (None,) * size, tokens, zeros, zeros)


def test_a_scaffold_says_itself_what_it_costs() -> None:
    found = ScaffoldCosts.of(TUPLE, None)
    assert found == ScaffoldCosts("tuple", 400.0, {"1": 50.0, "4": 25.0}, 0.25, 0.9, 0.8)


def test_the_cost_of_direct_is_that_of_its_responses() -> None:
    evaluation = {"samples": 8, "pass_at_k": {"1": 0.5, "4": 0.9}}
    found = ScaffoldCosts.of(evaluation, counts((200, 400)))
    assert found is not None
    assert found.tokens == 300
    assert found.pass_per_10k["4"] == pytest.approx(1e4 * 0.9 / 150), "four of eight samples take half of the tokens"
    assert ScaffoldCosts.of(evaluation, counts((200, None))) is None, "unknown is no number"
    assert ScaffoldCosts.of(evaluation, None) is ScaffoldCosts.of(None, None) is None


def test_arms_stand_side_by_side_where_one_has_a_scaffold_of_its_own() -> None:
    direct = ScaffoldCosts("direct", 300.0, {"1": 40.0, "4": 20.0})
    made = [by_problem("grpo", seed, drawn(seed, 0.3)) for seed in (0, 1)]
    other = [by_problem("joint", seed, drawn(seed, 0.3)) for seed in (0, 1)]
    plain = [replace(run, costs=direct) for run in made]
    told = [ScaffoldCosts.of({**TUPLE, "followed": followed}, None) for followed in (0.9, 0.7)]
    (comparison,) = compare_arms([*plain, *(replace(run, costs=its) for run, its in zip(other, told, strict=True))])
    assert [row[1:] for row in cost_table(comparison).rows] == [
        ("direct", "300", "20.0 (20.0 to 20.0)", "-", "-", "-"),
        (
            "tuple",
            "400",
            "25.0 (25.0 to 25.0)",
            "0.250 (0.250 to 0.250)",
            "0.800 (0.700 to 0.900)",
            "0.800 (0.800 to 0.800)",
        ),
    ]
    (comparison,) = compare_arms([*plain, *(replace(run, costs=direct) for run in other)])
    assert not cost_table(comparison).rows, "costs of direct alone are in the other tables"
