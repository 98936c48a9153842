"""What a run's drafts and attempts cost: a row a role, from the rows of metrics.jsonl."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from raypoly.analysis.reports.figures import SMOOTHING
from raypoly.core.tables import DASH, ReportTable


def role_table(rows: Sequence[Mapping[str, Any]]) -> ReportTable:
    """Drafts, their decoded tokens, and these a step, by role; no rows where no step had drafts.

    A draft that is an attempt counts as a draft.
    """
    counted = [row for row in rows if row.get("decoded_tokens")]
    tokens = [row["decoded_tokens"] for row in counted]
    drafts = [row.get("drafts", {}) for row in counted]
    roles = dict.fromkeys(role for step in (*drafts, *tokens) for role in step)
    total = sum(sum(step.values()) for step in tokens)
    lines = []
    for role in roles:
        values = [step.get(role, 0) for step in tokens]
        made = sum(step.get(role, 0) for step in drafts)
        means = (sum(some) / len(some) for some in (values[:SMOOTHING], values[-SMOOTHING:]))
        share = f"{sum(values) / total:.1%}" if total else DASH
        lines.append(
            (role, f"{made:,}" if made else DASH, f"{sum(values):,}", share, *(f"{mean:,.0f}" for mean in means))
        )
    ends = (f"a step, {end} {SMOOTHING}" for end in ("first", "last"))
    return ReportTable(("role", "drafts", "decoded tokens", "share", *ends), lines, title="drafts and attempts")
