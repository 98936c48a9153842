"""The table at the end: pass@k and distinct correct strategies, before and after, on the split for claiming."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

DASH = "-"
KS = ("1", "4", "8", "16", "64")


@dataclass(frozen=True)
class MeasureBeforeAfter:
    """One measure, before and after."""

    name: str
    before: float | None
    after: float | None

    @property
    def change(self) -> str:
        """`+0.213`, or nothing where a side is missing."""
        return "" if self.before is None or self.after is None else f"{self.after - self.before:+.3f}"


def first_and_last(
    summary: Mapping[str, Any], split: str = "test"
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The evaluations of `split` at its first and last step; the same one twice is no comparison: after is None."""
    of_split = sorted((e for e in summary.get("evaluations", []) if e["split"] == split), key=lambda e: e["step"])
    if not of_split:
        return None, None
    return of_split[0], of_split[-1] if len(of_split) > 1 else None


def comparisons(summary: Mapping[str, Any], split: str = "test") -> Sequence[MeasureBeforeAfter]:
    """The table's rows; none where the split was not evaluated."""
    before, after = first_and_last(summary, split)
    if before is None:
        return []
    last: Mapping[str, Any] = after or {}
    rows = [
        MeasureBeforeAfter(f"pass@{k}", before["pass_at_k"].get(k), last.get("pass_at_k", {}).get(k))
        for k in KS
        if k in before["pass_at_k"]
    ]
    for key, name in (
        ("strategies_correct", "distinct correct strategies in 8 (by execution)"),
        ("strategies_correct_judge", "distinct correct strategies in 8 (by the judge)"),
        ("strategies_correct_structural", "distinct correct strategies in 8 (by structure)"),
    ):
        if before.get(key) is not None:
            rows.append(MeasureBeforeAfter(name, before.get(key), last.get(key)))
    return rows


def end_table(summary: Mapping[str, Any], split: str = "test") -> Table:
    """The comparison as a table for the terminal."""
    before, after = first_and_last(summary, split)
    objective = summary.get("objective", "?")
    samples = (before or {}).get("samples", "?")
    table = Table(title=f"{objective}, {split} split, {samples} samples a problem", title_justify="left")
    table.add_column("")
    table.add_column(f"before (step {before['step']})" if before else "before", justify="right")
    table.add_column(f"after (step {after['step']})" if after else "after", justify="right")
    table.add_column("change", justify="right")
    for row in comparisons(summary, split):
        table.add_row(row.name, number(row.before), number(row.after), row.change)
    return table


def number(value: float | None) -> str:
    """Three decimals, or a dash for what was not measured."""
    return DASH if value is None else f"{value:.3f}"
