"""pass@k by part of the problems: budgets, or the data sets that a test set was made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raypoly.analysis.experiments.arm_comparison import compare_arms
from raypoly.analysis.experiments.run_result import RunResult
from raypoly.analysis.metrics.problem_counts import stratum_of
from raypoly.analysis.reports.comparison_tables import comparison_text, part_table
from tests.raypoly.analysis.experiments.test_measured_differences import result


def of_parts(run: RunResult, parts: tuple[str | None, ...]) -> RunResult:
    assert run.problems_after is not None
    assert run.problems_after.problems is not None
    return replace(
        run,
        problems_after=replace(run.problems_after, problems=replace(run.problems_after.problems, stratum=parts)),
    )


@pytest.mark.parametrize(
    ("metadata", "part"),
    [({"budget": "time"}, "time"), ({"source": "apps", "difficulty": "x"}, "apps"), ({"source": ""}, None), ({}, None)],
)
def test_a_problem_s_part_is_its_budget_or_its_data_set(metadata: dict[str, str], part: str | None) -> None:
    assert stratum_of(metadata) == part


def test_each_part_has_a_column_with_its_own_mean_and_interval() -> None:
    parts = ("apps", "apps", "apps", "livecodebench", "livecodebench")
    runs = [of_parts(result("grpo", seed, [64, 64, 0, 0, 0]), parts) for seed in (0, 1)]
    (comparison,) = compare_arms([*runs, result("other", 0, [64, 64, 64, 0, 0])])
    table = part_table(comparison)
    assert table.head[1:] == ("apps (3)", "livecodebench (2)")
    (name, apps, live), other = table.rows
    assert (name, apps[:5], live[:5]) == ("grpo", "0.667", "0.000")
    assert "[" in apps, "an interval over the part's three problems, not over six values"
    assert other == ("other", "-", "-"), "what is unknown is no number"
    assert "By part of the problems" in comparison_text(comparison)


def test_problems_of_one_part_need_no_table() -> None:
    runs = [of_parts(result("grpo", seed, [3, 5, 7]), ("apps",) * 3) for seed in (0, 1)]
    (comparison,) = compare_arms(runs)
    assert not part_table(comparison).rows
    assert "By part" not in comparison_text(comparison)
