"""What scaffolds cost, side by side in an experiment's table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raypoly.analysis.experiments.arm_comparison import compare_arms
from raypoly.analysis.experiments.scaffold_costs import ScaffoldCosts
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.analysis.reports.comparison_tables import cost_table
from tests.raypoly.analysis.experiments.test_measured_differences import drawn, result

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
    return ProblemCounts(
        id=tuple(f"p{i}" for i in range(size)),
        samples=(8,) * size,
        correct=(4,) * size,
        strategies=(None,) * size,
        response_tokens=tokens,
        truncated=(0,) * size,
        no_code=(0,) * size,
    )


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
    made = [result("grpo", seed, drawn(seed, 0.3)) for seed in (0, 1)]
    other = [result("joint", seed, drawn(seed, 0.3)) for seed in (0, 1)]
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
