"""Problems whose tests can't be run: tried three times, then set aside, never scored.

    verdicts = await aside.verdicts(problem, group.size, lambda: scorers.score(problem, codes))
    reason = set_aside(group)       # None where the group's verdicts are sound

A group that is set aside has `infra` verdicts throughout, in the journal too: no reward, no gradient, and the batch's
divisor stays. Where too many are, the run ends before it commits another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from raypoly.errors import BrokenTests, IsolationMissing, SandboxError, TooManySetAside
from raypoly.values import Group, Problem, Verdict

TRIES = 3
WAIT_SECONDS = 0.5
"""Before the second try; twice that before the third."""
ALWAYS_ALLOWED = 3
"""Groups that may be set aside whatever their share: at the start two of few would be too many."""


class SkippedGroups:
    """One run's problems that are set aside, and their share of its groups."""

    def __init__(self, limit: float, note: Callable[[str], None]) -> None:
        self._limit, self._note = limit, note
        self._reasons: dict[str, str] = {}
        """By problem, of this start: another start tries again, for the data or the machine may be mended."""
        self._groups = self._aside = 0

    async def verdicts(
        self, problem: Problem, size: int, score: Callable[[], Awaitable[Sequence[Verdict]]]
    ) -> tuple[Verdict, ...]:
        """What `score` gives; `infra` for all `size` programs where the problem fails time and again.

        Raises `IsolationMissing`: that is no problem's fault.
        """
        if problem.id not in self._reasons:
            for attempt in range(TRIES):
                try:
                    return tuple(await score())
                except IsolationMissing:
                    raise
                except (BrokenTests, SandboxError) as error:
                    reason = " ".join(str(error).split())
                if attempt + 1 < TRIES:
                    await asyncio.sleep(WAIT_SECONDS * 2**attempt)
            if problem.id not in self._reasons:
                self._reasons[problem.id] = reason
                self._note(f"Problem {problem.id} is set aside after {TRIES} tries: {reason}")
        return tuple(Verdict("infra", 0, 0, 0.0, self._reasons[problem.id]) for _ in range(size))

    def count(self, groups: int, aside: int) -> None:
        """Groups of training that are scored, or were at earlier starts. Raises `TooManySetAside`."""
        self._groups += groups
        self._aside += aside
        if aside and self._aside > max(ALWAYS_ALLOWED, self._limit * self._groups):
            problem, reason = next(reversed(self._reasons.items()), ("", "see the rows of metrics.jsonl"))
            raise TooManySetAside(
                f"{reason.rstrip('.')} (problem {problem}): the tests of {self._aside} of {self._groups} groups can't "
                f"be run, more than run.max_set_aside={self._limit:g}. Find such problems with raypoly score "
                "--validate, leave them out by problems.exclude, and start again; everything committed is kept."
            )


def skip_reason(group: Group) -> str | None:
    """Why a group is set aside; None where it is not, or is not scored yet."""
    verdicts = group.verdicts
    if verdicts and all(verdict.status == "infra" for verdict in verdicts):
        return verdicts[0].detail
    return None
