"""Problems of a time: those whose date, as their source gives it, lies in a window.

    within(problems, "2025-02-01", "2025-05-31")        # both days included

LiveCodeBench dates its problems by contest, LeetCodeDataset by an estimate; `metadata["date"]` has either.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from raypoly.values import Problem

log = logging.getLogger(__name__)


def within(problems: Iterable[Problem], since: str | None, until: str | None) -> list[Problem]:
    """Those of the days `since` to `until`, `YYYY-MM-DD`, both included; one that is None is no bound.

    Where there is a bound, a problem without a date is left out: nobody knows that it lies within.
    """
    everything = list(problems)
    if since is None and until is None:
        return everything
    dated = [problem for problem in everything if problem.metadata.get("date")]
    kept = [p for p in dated if (since or "") <= p.metadata["date"] <= (until or "9999-12-31")]
    log.warning(
        "problems.since and problems.until leave out %d of %d problems, %d of them without a date",
        len(everything) - len(kept),
        len(everything),
        len(everything) - len(dated),
    )
    return kept
