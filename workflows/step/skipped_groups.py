"""Groups that are skipped because the tests of their problem can't be run: tried three times, never scored.

    verdicts = await skipped.verdicts(problem, group.size, lambda: scorers.score(problem, codes))
    reason = skip_reason(group)       # None where the group takes part in the update

A skipped group has `infra` verdicts throughout, or a `Skipped` finding of another stage, in the journal too: no
reward, no gradient, and the batch's divisor stays. Where too many groups are skipped, the run ends before it commits
another one (`run.max_set_aside`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from raypoly.core.errors import BrokenTests, IsolationMissing, RaypolyError, SandboxError, TooManySetAside
from raypoly.core.values import Group, Problem, Skipped, Verdict

TRIES = 3
WAIT_SECONDS = 0.5
"""Before the second try; twice that before the third."""
_ALWAYS_ALLOWED = 3
"""Groups that may be skipped whatever their share: at the start two of few would be too many."""


class SkippedGroups:
    """Counts one run's skipped groups, and keeps the reasons."""

    def __init__(self, limit: float, note: Callable[[str], None]) -> None:
        self._limit, self._note = limit, note
        self._reasons: dict[str, str] = {}
        """By problem. The next start tries again, since the data or the machine may be mended."""
        self.groups = self._skipped = 0

    async def verdicts(
        self, problem: Problem, size: int, score: Callable[[], Awaitable[Sequence[Verdict]]]
    ) -> tuple[Verdict, ...]:
        """The verdicts of `score`; `infra` for all `size` programs if it fails three times.

        Raises `IsolationMissing`, which no problem causes.
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

    def count(self, groups: int, skipped: int, reason: str = "") -> None:
        """Count groups of training that are scored, or were at earlier starts. Raises `TooManySetAside`.

        `reason`: why another stage than `score` skips the group; it names the stage.
        """
        self.groups += groups
        self._skipped += skipped
        if skipped and self._skipped > max(_ALWAYS_ALLOWED, self._limit * self.groups):
            what, advice = "are skipped", "Mend what the stage asks"
            if not reason:
                problem, why = next(reversed(self._reasons.items()), ("", "see the rows of metrics.jsonl"))
                reason, what = f"{why.rstrip('.')} (problem {problem})", "have tests that can't be run"
                advice = "Mend the tests that raypoly score --validate names in their file (same rows, same ids)"
            raise TooManySetAside(
                f"{reason}: {self._skipped} of {self.groups} groups {what}, more than run.max_set_aside="
                f"{self._limit:g}. {advice}, or raise run.max_set_aside, and give the same command again: everything "
                "committed is kept. problems.exclude leaves such problems out of a new run."
            )


def infra_reason(verdicts: Sequence[Verdict] | None) -> str | None:
    """Why none of a group's programs could be scored; None where they could, or are not scored yet."""
    if verdicts and all(verdict.status == "infra" for verdict in verdicts):
        return verdicts[0].detail
    return None


def skip_reason(group: Group) -> str | None:
    """Why a group is left out of the update: its tests can't be run, or a stage can't work on it; None where it is not
    left out."""
    skipped = (part.reason for part in group.findings.values() if isinstance(part, Skipped))
    reasons = (infra_reason(group.verdicts), draft_infra(group))
    return next(skipped, next((reason for reason in reasons if reason is not None), None))


def draft_infra(group: Group) -> str | None:
    """Why the public tests of a group's drafts can't be run; None where they can."""
    verdicts = (draft.verdict for draft in group.drafts if draft.verdict is not None)
    return next((verdict.detail for verdict in verdicts if verdict.status == "infra"), None)


def sound_verdicts(group: Group) -> Sequence[Verdict]:
    """The verdicts of a group that is scored and not skipped. Raises `RaypolyError` for any other."""
    if group.verdicts is None or any(verdict.status == "infra" for verdict in group.verdicts):
        raise RaypolyError(f"step {group.step}, slot {group.slot}: a group without sound verdicts went on")
    return group.verdicts
