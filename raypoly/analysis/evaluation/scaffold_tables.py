"""Scaffolds side by side: what each costs, how often it solves, how different its attempts are, and how they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.analysis.reports.run_table import shown_ks
from raypoly.analysis.statistics.intervals import mean_text, share_interval
from raypoly.analysis.statistics.paired_differences import PairedDifferences
from raypoly.core.tables import ReportTable, number

Values = Mapping[str, float]
"""By problem id."""


def scaffold_tables(payload: Mapping[str, Any], table: pa.Table) -> list[ReportTable]:
    """A row a scaffold, and each one's difference from the first; none for an evaluation by `direct` alone.

    `table`: the samples of all scaffolds, in the groups' order.
    """
    measured = [payload, *payload.get("scaffolds", ())]
    if "scaffold" not in payload:
        return []
    curves = [each["pass_at_k"] for each in measured]
    shared = shown_ks([{k: value for k, value in curves[0].items() if all(k in curve for curve in curves)}])
    values = [_values(table, each, shared) for each in measured]
    tables = [_side_by_side(measured, values, shared)]
    if len(measured) > 1:
        tables.append(_differences(measured, values, shared))
    return tables


def _side_by_side(
    measured: Sequence[Mapping[str, Any]], values: Sequence[Sequence[Values]], shared: Sequence[str]
) -> ReportTable:
    rows = [
        (
            each["scaffold"],
            f"{each['block']:,}",
            f"{sum(each['decoded_tokens'].values()):,.0f}",
            *(mean_text(share_interval(list(by_problem.values()))) for by_problem in own),
            number(each["pass_per_10k"][shared[-1]]) if shared else number(None),
            number(each["surface_diversity"]),
            number(each["duplicates"]),
            number(each["followed"]),
        )
        for each, own in zip(measured, values, strict=True)
    ]
    head = (
        *("scaffold", "block", "tokens a problem"),
        *(f"pass@{k}" for k in shared),
        f"pass@{shared[-1]} per 10k tokens" if shared else "per 10k tokens",
        *("surface diversity", "duplicates", "followed"),
    )
    title = "in brackets the 95 % interval over problems; diversity of methods, or of programs where there are none"
    return ReportTable(head, rows, title=title)


def _differences(
    measured: Sequence[Mapping[str, Any]], values: Sequence[Sequence[Values]], shared: Sequence[str]
) -> ReportTable:
    rows = []
    for other, own in zip(measured[1:], values[1:], strict=True):
        cells = []
        for one, two in zip(own, values[0], strict=True):
            both = [name for name in two if name in one]
            found = PairedDifferences.of([[one[name] for name in both]], [[two[name] for name in both]]).over_problems()
            cells.append(f"{mean_text(found.interval)}, p {found.p_value:.3f}")
        rows.append((f"{other['scaffold']} less {measured[0]['scaffold']}", *cells))
    return ReportTable(("difference", *(f"pass@{k}" for k in shared)), rows)


def _values(table: pa.Table, measured: Mapping[str, Any], shared: Sequence[str]) -> list[Values]:
    """pass@k of one scaffold, for each k; problems whose tests can't be run are left out."""
    counts = ProblemCounts.of(table, measured["block"], measured["scaffold"])
    assert counts is not None, "a sample table has verdicts"
    known, select = counts.of_known(), measured.get("select", "first")
    return [known.pass_at_k(int(k), select) or {} for k in shared]
