"""The report's table on the judge: calls, money, and whether it still judges as it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from raypoly.core.tables import DASH, number
from raypoly.run.run_files import RunFiles
from raypoly.strategies.judge.judge_usage import JudgeSpending, dollars, sum_spending

_UNKNOWN = "unknown: give judge.price_input and judge.price_output"
_COUNTS = (
    ("groups", "groups labelled"),
    ("free", "of these without asking (all programs alike)"),
    ("calls", "calls"),
    ("retries", "retries"),
    ("limited", "calls refused by a rate limit"),
    ("refusals", "refusals"),
    ("invalid", "answers that could not be used"),
    ("failovers", "answers from the second server"),
    ("prompt_tokens", "prompt tokens"),
    ("completion_tokens", "answer tokens"),
)


def judge_rows(run: RunFiles) -> list[tuple[str, str]]:
    """(name, value), a dash for what the run's version did not count; no rows for a judge that was asked nothing."""
    rows, config = run.rows, run.config.judge
    spent = sum_spending(rows, run.evaluations)
    agreements = [(row["step"], row["judge_agreement"]) for row in rows if row.get("judge_agreement") is not None]
    if spent is None and not agreements and not any(row.get("judge") for row in rows):
        return []
    left = max(0, run.config.train.steps - run.steps_done)
    return [
        ("judge", f"{config.name}, {config.model}" if config.name == "openai" else config.name),
        *_labelled_by(rows),
        *((name, _count(spent, key)) for key, name in _COUNTS),
        ("prompt tokens that the server had cached", _share(spent, "cached_tokens", ("cached_of",))),
        ("answers found in the cache", _share(spent, "cache_hits", ("cache_hits", "answers"))),
        ("unjudged groups", f"{sum(row.get('unjudged', 0) for row in rows):,}"),
        *_money(spent, left),
        *_agreement(agreements),
    ]


def _labelled_by(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Training groups by the judge that labelled them; a second server counts under its model's name."""
    groups: Counter[str] = Counter()
    for row in rows:
        groups.update(row.get("labelled_by", {}))
    return [(f"training groups labelled by {judge}", f"{count:,}") for judge, count in groups.most_common()]


def _count(spent: JudgeSpending | None, key: str) -> str:
    return DASH if spent is None else f"{spent.use.get(key, 0):,.0f}"


def _share(spent: JudgeSpending | None, part: str, whole: Sequence[str]) -> str:
    of = 0.0 if spent is None else sum(spent.use.get(name, 0) for name in whole)
    return DASH if spent is None or not of else f"{spent.use.get(part, 0) / of:.0%}"


def _money(spent: JudgeSpending | None, left: int) -> list[tuple[str, str]]:
    if spent is None:
        return [("money so far", DASH)]
    so_far = _UNKNOWN if spent.cost_usd is None else dollars(spent.cost_usd)
    since = f" (since step {spent.since})" if spent.since else ""
    found = [(f"money so far{since}", so_far)]
    if lost := spent.use.get("lost_usd"):
        found.append(("calls without an answer may have cost, at most", dollars(lost)))
    if spent.a_step_usd is not None:
        found.append(("money a step, newest steps", dollars(spent.a_step_usd)))
    if left:
        a_step = spent.a_step_usd
        found.append((f"money for the {left} steps to come", _UNKNOWN if a_step is None else dollars(left * a_step)))
    return found


def _agreement(agreements: Sequence[tuple[int, float]]) -> list[tuple[str, str]]:
    if not agreements:
        return []
    (first, before), (last, now) = agreements[0], agreements[-1]
    text = f"{number(before)} at step {first}" + (f", {number(now)} at step {last}" if len(agreements) > 1 else "")
    return [(f"agreement with gold groups, {len(agreements)} looks (adjusted Rand index)", text)]
