"""Programs side by side: what each costs, how often it solves, how different its attempts are, and how they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from raypoly.metrics.block_pass_at_k import block_pass_at_k
from raypoly.reports.tables import ReportTable, mean_text, number
from raypoly.statistics.intervals import share_interval
from raypoly.statistics.paired_differences import PairedDifferences

_SHOWN = ("1", "4", "8", "16", "64")


def program_tables(payload: Mapping[str, Any], table: pa.Table) -> list[ReportTable]:
    """A row a program, and each one's difference from the first; none for an evaluation by `direct` alone.

    `table`: the samples of all programs, in the groups' order.
    """
    measured = [payload, *payload.get("programs", ())]
    if "program" not in payload:
        return []
    passed = {each["program"]: _passed(table, each["program"]) for each in measured}
    shared = [k for k in _SHOWN if all(k in each["pass_at_k"] for each in measured)]
    tables = [_side_by_side(measured, passed, shared)]
    if len(measured) > 1:
        tables.append(_differences(measured, passed, shared))
    return tables


def _side_by_side(
    measured: Sequence[Mapping[str, Any]], passed: Mapping[str, Mapping[str, list[bool]]], shared: Sequence[str]
) -> ReportTable:
    rows = [
        (
            each["program"],
            f"{each['block']:,}",
            f"{sum(each['decoded_tokens'].values()):,.0f}",
            *(mean_text(share_interval(_values(passed[each["program"]], each["block"], int(k)))) for k in shared),
            number(each["pass_per_10k"][shared[-1]]) if shared else number(None),
            number(each["surface_diversity"]),
            number(each["duplicates"]),
            number(each["followed"]),
        )
        for each in measured
    ]
    head = (
        *("program", "block", "tokens a problem"),
        *(f"pass@{k}" for k in shared),
        f"pass@{shared[-1]} per 10k tokens" if shared else "per 10k tokens",
        *("surface diversity", "duplicates", "followed"),
    )
    title = "in brackets the 95 % interval over problems; diversity of methods, or of programs where there are none"
    return ReportTable(head, rows, title=title)


def _differences(
    measured: Sequence[Mapping[str, Any]], passed: Mapping[str, Mapping[str, list[bool]]], shared: Sequence[str]
) -> ReportTable:
    first, *others = measured
    rows = []
    for other in others:
        cells = []
        for k in shared:
            both = [name for name in passed[first["program"]] if name in passed[other["program"]]]
            values = [
                [block_pass_at_k(passed[each["program"]][name], each["block"], int(k)) for name in both]
                for each in (other, first)
            ]
            found = PairedDifferences.of([values[0]], [values[1]]).over_problems()
            cells.append(f"{mean_text(found.interval)}, p {found.p_value:.3f}")
        rows.append((f"{other['program']} less {first['program']}", *cells))
    return ReportTable(("difference", *(f"pass@{k}" for k in shared)), rows)


def _values(passed: Mapping[str, list[bool]], block: int, k: int) -> list[float]:
    return [block_pass_at_k(each, block, k) for each in passed.values()]


def _passed(table: pa.Table, program: str) -> dict[str, list[bool]]:
    """Whether each attempt passed, by problem; problems whose tests can't be run are left out."""
    found: dict[str, list[bool]] = {}
    aside = set()
    names = table["program"].to_pylist() if "program" in table.column_names else [program] * table.num_rows
    for name, problem, status in zip(names, table["problem_id"].to_pylist(), table["status"].to_pylist(), strict=True):
        if name == program:
            found.setdefault(problem, []).append(status == "passed")
            if status == "infra":
                aside.add(problem)
    return {problem: passed for problem, passed in found.items() if problem not in aside}
