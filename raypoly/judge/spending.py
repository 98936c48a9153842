"""What a run's judge cost so far and will cost to the end, from the rows of metrics.jsonl and the evaluations.

    spent = spending(run.rows, run.evaluations)
    spent.cost_usd, spent.a_step_usd, spent.use["prompt_tokens"]

Rows of a run that an earlier version wrote have no such counts; what is unknown is None, never 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RECENT = 20
"""Steps whose mean cost is taken for that of the steps to come."""


@dataclass(frozen=True)
class Spending:
    """What one run's own questions used."""

    use: Mapping[str, float]
    """Counts by name, as `raypoly.judge.judge_usage.told` names them."""
    cost_usd: float | None
    a_step_usd: float | None
    """Mean of the newest steps."""
    since: int
    """The first step that was counted."""


def spending(rows: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> Spending | None:
    """The sum of all that was counted; None where no row has counts: an offline judge, or an earlier version."""
    counted = [row for row in rows if row.get("judge_step")]
    if not counted:
        return None
    steps = [row["judge_step"] for row in counted]
    every = [*steps, *(e["judge"] for e in evaluations if e.get("judge"))]
    use: Counter[str] = Counter()
    for told in every:
        use.update({name: value for name, value in told.items() if name != "cost_usd" and value is not None})
    return Spending(
        use, total([told["cost_usd"] for told in every]), recent([s["cost_usd"] for s in steps]), counted[0]["step"]
    )


def total(costs: Sequence[float | None]) -> float | None:
    """Their sum; None where one is unknown."""
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if len(known) == len(costs) else None


def recent(costs: Sequence[float | None]) -> float | None:
    """Mean cost of the newest steps; None where one of them is unknown, or there is none."""
    newest = costs[-RECENT:]
    summed = total(newest)
    return summed / len(newest) if newest and summed is not None else None


def dollars(amount: float) -> str:
    """`$0.016`, `$1.3`, `$1,304`: two digits that say something, all of those before the point."""
    if amount >= 10:
        return f"${amount:,.0f}"
    digits = 1 if amount >= 1 else max(2, 1 - math.floor(math.log10(amount))) if amount > 0 else 0
    return f"${amount:.{digits}f}"
