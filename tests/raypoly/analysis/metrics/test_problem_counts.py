"""Counts by problem are those that an evaluation's means are made of; what was not kept is unknown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from raypoly import Run
from raypoly.analysis.metrics.pass_at_k import STRATEGY_DRAWS, expected_distinct, pass_at_k
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.core.errors import UsageError
from tests.support.scored_run import SAMPLES, write_scored_run


def samples(problem: str, statuses: Sequence[str], strategies: Sequence[str | None]) -> list[dict[str, Any]]:
    """Samples of 5, 6, 7 ... tokens, the last of which was cut. What a program did is known by its status alone."""
    ends = ["stop"] * (len(statuses) - 1) + ["length"]
    return [
        {
            "problem_id": problem,
            "rollout": i,
            "status": status,
            "strategy": strategy,
            "behaviour": status if status in ("passed", "wrong", "error") else None,
            "response_tokens": 5 + i,
            "finish_reason": end,
            "stratum": "free" if problem == "a" else None,
        }
        for i, (status, strategy, end) in enumerate(zip(statuses, strategies, ends, strict=True))
    ]


TABLE = pa.Table.from_pylist(
    [
        *samples("a", ["passed", "passed", "passed", "no_code"], ["loop", "sum", "loop", None]),
        *samples("b", ["wrong", "wrong", "timeout", "error"], ["loop", None, None, None]),
        *samples("c", ["infra"] * 4, [None] * 4),
        *samples("d", ["passed", "passed", "wrong", "wrong"], ["loop", None, None, None]),
    ]
)


def test_each_problem_has_its_exact_counts_and_what_was_not_measured_is_unknown() -> None:
    counts = ProblemCounts.of(TABLE)
    assert counts == ProblemCounts(
        id=("a", "b", "c", "d"),
        samples=(4, 4, 4, 4),
        correct=(3, 0, None, 2),
        strategies=((2, 1), (), None, None),
        response_tokens=(26, 26, 26, 26),
        truncated=(1, 1, 1, 1),
        no_code=(1, 0, None, 0),
        behaviours=((3,), (2, 1), None, (2, 2)),
        stratum=("free", None, None, None),
    )


def test_columns_that_an_earlier_version_did_not_keep_are_unknown() -> None:
    counts = ProblemCounts.of(TABLE.drop_columns(["strategy", "response_tokens", "finish_reason", "behaviour"]))
    assert counts is not None
    assert counts.correct == (3, 0, None, 2)
    for column in (counts.strategies, counts.response_tokens, counts.truncated, counts.behaviours):
        assert column == (None,) * 4
    assert ProblemCounts.of(TABLE.drop_columns(["status"])) is None


def test_the_means_of_the_evaluation_follow_from_the_counts(tmp_path: Path) -> None:
    run = Run(write_scored_run(tmp_path))
    (payload,) = run.evaluations
    counts = ProblemCounts.of(run.samples(2, "validation"))
    assert counts is not None
    assert counts.strategies == ((3, 2), (3, 2))
    pairs = list(zip(counts.samples, counts.correct, strict=True))
    for k, value in payload["pass_at_k"].items():
        assert sum(pass_at_k(n, c or 0, int(k)) for n, c in pairs) / len(pairs) == value
    drawn = [
        expected_distinct(n, sizes or (), STRATEGY_DRAWS)
        for n, sizes in zip(counts.samples, counts.strategies, strict=True)
    ]
    assert sum(drawn) / len(drawn) == pytest.approx(payload["strategies_correct"])
    assert json.loads(json.dumps(vars(counts)))["correct"] == [5, 5]


def test_a_run_gives_an_evaluations_samples_and_says_which_there_are(tmp_path: Path) -> None:
    run = Run(write_scored_run(tmp_path))
    table = run.samples(2, "validation")
    assert table.num_rows == 2 * len(SAMPLES)
    assert {"problem_id", "text", "status", "strategy", "response_tokens"} <= set(table.column_names)
    with pytest.raises(UsageError, match=r"no evaluation of test at step 2; it has: validation at step 2\."):
        run.samples(2)
