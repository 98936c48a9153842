"""What an evaluation says beside pass@k: cut and empty responses, behaviours, the judge's groups, and parts of the
problems. What is unknown is never a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pytest

from raypoly.analysis.evaluation.evaluation_results import (
    evaluation_results,
    joined_labels,
    judged_at_once,
    judged_groups,
    problem_outcome,
    sample_table,
    slices_of,
)
from raypoly.analysis.evaluation.evaluation_tables import evaluation_tables
from raypoly.analysis.metrics.pass_at_k import JudgedGroup
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.core.settings import load
from raypoly.core.values import Failure, Group, Labels, Rollout, Verdict

NOTHING = np.zeros(0, np.int32)
RIGHT = Verdict("passed", 3, 3, 0.0)
NO_CODE = Verdict("no_code", 0, 3, 0.0)
INFRA = Verdict("infra", 0, 3, 0.0)
LATE = Verdict("timeout", 0, 3, 1.0, repeatable=False)


def wrong(got: str, test: int = 1) -> Verdict:
    return Verdict("wrong", test - 1, 3, 0.0, failure=Failure(test, "f(1)", got, "2"))


def group(name: str, verdicts: Sequence[Verdict], cut: int = 0) -> Group:
    """A scored group, the first `cut` responses of which ended at the longest."""
    logprobs = np.zeros(0, np.float32)
    rollouts = tuple(
        Rollout(NOTHING, NOTHING, logprobs, "", "length" if place < cut else "stop", place, 0)
        for place in range(len(verdicts))
    )
    return Group(0, 0, name, rollouts, {"score": tuple(verdicts)})


GROUPS = [
    group("easy-1", [RIGHT] * 6 + [NO_CODE] * 2, cut=2),
    group("easy-2", [RIGHT] * 8),
    group("hard-1", [wrong("3"), wrong("3"), wrong("4"), wrong("3", test=2), LATE, LATE, RIGHT, RIGHT]),
    group("hard-2", [NO_CODE] * 8, cut=8),
    group("gone", [INFRA] * 8, cut=8),
]
METADATA = {
    each.problem_id: {"difficulty": each.problem_id.partition("-")[0], "title": each.problem_id} for each in GROUPS
}


def test_the_measures_of_all_problems_and_of_each_part_leave_out_what_is_unknown() -> None:
    results = evaluation_results(GROUPS, {"gone": "no memory"}, METADATA)
    assert results["pass_at_k"]["1"] == pytest.approx((6 + 8 + 2 + 0) / 32)
    assert (results["truncated"], results["no_code"]) == (pytest.approx(10 / 32), pytest.approx(10 / 32))
    assert results["behaviours"] == pytest.approx((1 + 1 + 4 + 0) / 4), "a timeout by the clock is none"
    assert (results["strategies_correct"], results["strategies_correct_judge"]) == (None, None)
    assert results["slices"].keys() == {"difficulty"}, "a title divides nothing"
    easy, hard = results["slices"]["difficulty"].values()
    assert (easy["problems"], easy["pass_at_k"]["1"]) == (2, pytest.approx(14 / 16))
    assert (hard["problems"], hard["pass_at_k"]["8"], hard["behaviours"]) == (2, 0.5, pytest.approx(2))


def test_the_tables_say_the_same_with_intervals() -> None:
    results = evaluation_results(GROUPS, {"gone": "no memory"}, METADATA) | {"samples": 8}
    table = sample_table(GROUPS, {each.problem_id: {"budget": each.problem_id[-1]} for each in GROUPS})
    counts = ProblemCounts.of(table)
    assert counts is not None
    assert asdict(counts)["behaviours"] == ((6,), (8,), (2, 2, 1, 1), (), None)
    whole, parts = evaluation_tables(results, table, METADATA, "mine")
    rows = {row[0]: row[1] for row in whole.rows}
    assert rows["pass@1"].startswith("0.500 [0.")
    assert rows["problems solved at least once"] == "3 of 4"
    assert rows["responses without a program"].startswith("0.312 [")
    assert rows["distinct behaviours in 8, right or wrong"].startswith("1.500 [")
    assert rows["problems set aside"] == "1"
    assert "distinct correct strategies in 8, by execution" not in rows, "no program left evidence"
    assert parts.head == ("difficulty", "problems", "pass@1", "pass@8")
    assert [row[:2] for row in parts.rows] == [("easy", "2"), ("hard", "2")]
    assert parts.rows[1][3].startswith("0.500 [")


def test_a_judge_sees_few_samples_at_once_and_labels_of_two_groups_are_not_compared() -> None:
    configs = [load(None, ["judge.name=openai", f"train.rollouts={count}"], print) for count in (4, 8, 16)]
    assert [judged_at_once(config) for config in configs] == [8, 8, 16]
    assert judged_at_once(load(None, ["judge.name=structural"], print)) is None, "rules take any number"
    whole = group("many", [RIGHT] * 20)
    assert judged_groups(whole, None) == [whole]
    parts = judged_groups(whole, 8)
    assert [part.size for part in parts] == [8, 8, 4]
    assert [part.rollouts[0].seed for part in parts] == [0, 8, 16], "in the order of the samples"
    found = [
        Labels(np.arange(part.size, dtype=np.int32) // 4 + 1, np.zeros(part.size, np.bool_), "one") for part in parts
    ]
    labels = joined_labels(found)
    assert labels is not None
    judged = whole.with_findings(judge=labels)
    outcome = problem_outcome(judged, at_once=8)
    assert outcome.judged == (JudgedGroup(8, (1,) * 4 + (2,) * 4),) * 2 + (JudgedGroup(4, (1,) * 4),)
    results = evaluation_results([judged], {}, {"many": {}}, at_once=8)
    assert results["strategies_correct_judge"] == pytest.approx(2)
    assert sample_table([judged], {"many": {}}, 8).column("label_group").to_pylist() == [0] * 8 + [1] * 8 + [2] * 4
    assert joined_labels([*found[:2], None]) is None, "one that could not be labelled leaves the problem unknown"


def test_dates_are_taken_by_month_or_by_year_and_numbers_are_in_their_order() -> None:
    months = slices_of({f"p{i}": {"date": f"2025-{1 + i % 3:02d}-{1 + i:02d}"} for i in range(9)})
    assert list(months["date"]) == ["2025-01", "2025-02", "2025-03"]
    years = slices_of({f"p{i}": {"date": f"{2020 + i % 2}-{1 + i // 2:02d}-01"} for i in range(24)})
    assert {value: len(names) for value, names in years["date"].items()} == {"2020": 12, "2021": 12}
    budgets = slices_of({f"p{i}": {"budget": str(10 ** (i % 3))} for i in range(6)} | {"without": {}})
    assert list(budgets["budget"].items()) == [("1", ["p0", "p3"]), ("10", ["p1", "p4"]), ("100", ["p2", "p5"])]
    assert slices_of({f"p{i}": {"budget": "5"} for i in range(6)}) == {}, "one value divides nothing"
