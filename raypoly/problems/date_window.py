"""Problems of a time: those whose date, as their source gives it, lies in a window.

    within(problems, "2025-02-01", "2025-05-31")        # both days included
    outside("2025-06-01", "2025-02-01", "2025-05-31")   # "it is of 2025-06-01, after 2025-05-31"

LiveCodeBench dates its problems by contest, LeetCodeDataset by an estimate; `metadata["date"]` has either.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from raypoly.values import Problem

log = logging.getLogger(__name__)


def outside(day: str | None, since: str | None, until: str | None) -> str:
    """Why a day is none of `since` to `until`, all `YYYY-MM-DD`, both included; empty where it is one.

    A bound that is None is none. Where there is one, an unknown day is outside: nobody knows that it lies within.
    """
    if since is None and until is None:
        return ""
    if not day:
        return "its row names no day, and a window was asked for"
    if since is not None and day < since:
        return f"it is of {day}, before {since}"
    if until is not None and day > until:
        return f"it is of {day}, after {until}"
    return ""


def within(problems: Iterable[Problem], since: str | None, until: str | None) -> list[Problem]:
    """Those that are not `outside`; the log says how many are."""
    everything = list(problems)
    if since is None and until is None:
        return everything
    kept = [problem for problem in everything if not outside(problem.metadata.get("date"), since, until)]
    log.warning(
        "problems.since and problems.until leave out %d of %d problems, %d of them without a date",
        len(everything) - len(kept),
        len(everything),
        sum(not problem.metadata.get("date") for problem in everything),
    )
    return kept
