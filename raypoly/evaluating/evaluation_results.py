"""An evaluation's results: one row a sample, the numbers of all problems, and what a person is shown.

table = sample_table(groups)
results = evaluation_results(groups, set_aside)
console.print(results_table(results, "smollm2-q4").rich())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from raypoly.metrics.group_outcomes import GroupOutcomes
from raypoly.metrics.pass_at_k import ProblemOutcome, summarise
from raypoly.metrics.problem_counts import ProblemCounts
from raypoly.reports.tables import ReportTable, number
from raypoly.values import Group

_DECIMAL = (10, 100)
"""The k of published tables that are no power of two."""
_SHOWN = ("1", "4", "8", "10", "16", "64", "100", "128", "256")


def problem_outcome(group: Group) -> ProblemOutcome:
    """A scored group as an evaluation counts it."""
    labels = None if group.labels is None else group.labels.strategies
    return GroupOutcomes.of(group.verdicts or (), None).outcome(labels)


def sample_table(groups: Sequence[Group]) -> pa.Table:
    """One row a sample of these scored groups."""
    rows = [
        {
            "problem_id": group.problem_id,
            "rollout": index,
            "text": rollout.text,
            "response_tokens": len(rollout.tokens),
            "finish_reason": rollout.finish_reason,
            "seed": rollout.seed,
            "status": verdict.status,
            "detail": verdict.detail,
            "strategy": verdict.evidence.strategy if verdict.evidence else None,
            "label": None if group.labels is None else int(group.labels.ids[index]),
        }
        for group in groups
        for index, (rollout, verdict) in enumerate(zip(group.rollouts, group.verdicts or (), strict=True))
    ]
    return pa.Table.from_pylist(rows)


def evaluation_results(groups: Sequence[Group], table: pa.Table, set_aside: Mapping[str, str]) -> dict[str, Any]:
    """JSON values: the measures over the problems that are not set aside, and the counts by problem of all.

    `table`: the groups' `sample_table`. `set_aside`: why a problem's samples could not be judged, by its id.
    """
    sound = [problem_outcome(group) for group in groups if group.problem_id not in set_aside]
    summary = dict(summarise(sound, _DECIMAL))
    del summary["strategies_correct_judge"]  # no judge is asked
    counts = ProblemCounts.of(table)
    assert counts is not None, "a sample table has verdicts"
    return {**summary, "set_aside": dict(set_aside), "problems": asdict(counts)}


def results_table(results: Mapping[str, Any], model: str) -> ReportTable:
    """The measures for a person."""
    curve, problems = results["pass_at_k"], results["problems"]
    tried = [correct for correct in problems["correct"] if correct is not None]
    rows = [(f"pass@{k}", number(curve[k])) for k in _SHOWN if k in curve]
    rows.append(("problems solved at least once", f"{sum(map(bool, tried)):,} of {len(tried):,}"))
    for name, column in (("cut off at generator.max_tokens", "truncated"), ("without a program", "no_code")):
        rows.append((f"responses {name}", _share(problems[column], problems["samples"])))
    for name, key in (("by execution", "strategies_correct"), ("by structure", "strategies_correct_structural")):
        if results[key] is not None:
            rows.append((f"distinct correct strategies in 8, {name}", number(results[key])))
    if results["set_aside"]:
        rows.append(("problems set aside", f"{len(results['set_aside']):,}"))
    return ReportTable(("", model), rows, title=f"{results['samples']} samples a problem")


def _share(counts: Sequence[int | None], samples: Sequence[int]) -> str:
    known = [(count, size) for count, size in zip(counts, samples, strict=True) if count is not None]
    whole = sum(size for _, size in known)
    return f"{sum(count for count, _ in known) / whole:.0%}" if whole else "-"
