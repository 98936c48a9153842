"""When each stage of a step was at work, how many groups have passed it, and what the step waited for at each instant.

    with watch.stage("score", group.slot):
        ...
    found = watch.waterfall()
    found.seconds["judge"]      # the judge was at work on some group
    found.exposed["judge"]      # ... and nothing that comes before it in PRIORITY was: the step waited for it

Groups overlap, so a stage's time is that with at least one group in it. Every instant of the step belongs to one entry
of `exposed`, so these add up to the step: to the first stage of PRIORITY that is at work, or to `idle` where none is
(the journal's commits, an actor that is being replaced, the driver's own work). A pause of the judge is the judge at
work.

The **tail** runs from the end of generation to the labels of the group that came out last (its verdicts, where nobody
judges). Only the learner's work on other groups can hide that one group's scoring and judging. What is exposed beyond
the tail is waited for because of other groups.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_GENERATE = "generate"
_CROSS = "cross"
PRIORITY = (_GENERATE, "learn", _CROSS, "judge", "score", "sync")
"""The stages, those first that a step can't do without: others hide behind them; a user's own come last."""
IDLE = "idle"
HIDEABLE = ("score", "judge")
"""The stages that are meant to hide."""


@dataclass(frozen=True)
class StageInterval:
    """A stage was at work from `start` to `end`, by one clock in seconds."""

    stage: str
    start: float
    end: float
    slot: int | None = None
    """The group's; None where the stage works on the whole step."""


@dataclass(frozen=True)
class Waterfall:
    """Seconds of one step."""

    seconds: Mapping[str, float]
    """By stage, with at least one group in it, and `total`."""
    exposed: Mapping[str, float]
    """By stage of PRIORITY (without `cross` where it never worked) and `idle`: what the step waited for; adds up to
    `total`."""
    tail: Mapping[str, float | None]
    """`seconds`, and of them those of scoring and judging that are `exposed`; None where nothing was generated (the
    journal held it all)."""


def waterfall(intervals: Sequence[StageInterval], start: float, end: float) -> Waterfall:
    """The waterfall of a step that lasted from `start` to `end`."""
    tail = _tail(intervals)
    seconds: Counter[str] = Counter()
    at_work = {each.stage for each in intervals}
    order = (*PRIORITY, *sorted(at_work - {*PRIORITY}))
    exposed = {name: 0.0 for name in (*order, IDLE) if name in at_work or name != _CROSS}
    exposed_tail = 0.0
    busy: Counter[str] = Counter()
    now = start
    for time, stage, change in [*_changes(intervals), (end, IDLE, 0)]:
        length, since, now = time - now, now, time
        seconds.update({name: length for name, count in busy.items() if count})
        waited_for = next((name for name in order if busy[name]), IDLE)
        exposed[waited_for] += length
        if tail is not None and waited_for in HIDEABLE and tail[0] <= since < tail[1]:
            exposed_tail += length  # the tail begins and ends with stages, so no length is in it in part
        busy[stage] += change
    told = (
        {"seconds": None, "exposed": None} if tail is None else {"seconds": tail[1] - tail[0], "exposed": exposed_tail}
    )
    return Waterfall({**seconds, "total": end - start}, exposed, told)


def _changes(intervals: Sequence[StageInterval]) -> list[tuple[float, str, int]]:
    """When a stage begins (+1) or ends (-1) to work on something, in order."""
    begins = [(each.start, each.stage, 1) for each in intervals]
    ends = [(each.end, each.stage, -1) for each in intervals]
    return sorted([*begins, *ends], key=lambda change: change[0])


def _tail(intervals: Sequence[StageInterval]) -> tuple[float, float] | None:
    """From the end of generation to the last label of the group that entered scoring (or judging) last."""
    generated = max((each.end for each in intervals if each.stage == _GENERATE), default=None)
    flows: dict[int | None, list[StageInterval]] = {}
    for each in intervals:
        if each.stage in HIDEABLE:
            flows.setdefault(each.slot, []).append(each)
    if generated is None or not flows:
        return None
    last = max(flows.values(), key=lambda flow: min(each.start for each in flow))
    return generated, max(generated, *(each.end for each in last))


class Stopwatch:
    """Intervals by stage, by the running event loop's clock; `on_done(stage, groups)` is called when groups have
    passed one."""

    def __init__(
        self,
        on_done: Callable[[str, int], None] = lambda stage, groups: None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock`: another than the running event loop's."""
        self._on_done = on_done
        self._done: Counter[str] = Counter()
        self._intervals: list[StageInterval] = []
        self._clock = clock or asyncio.get_running_loop().time
        self._started = self._clock()

    @contextmanager
    def stage(self, name: str, slot: int | None = None) -> Iterator[None]:
        """Count the time inside as the stage's, for one group or for the whole step; may be entered many times at
        once."""
        since = self._clock()
        try:
            yield
        finally:
            self._intervals.append(StageInterval(name, since, self._clock(), slot))

    def done(self, name: str, groups: int = 1) -> None:
        """Count groups that have passed the stage."""
        self._done[name] += groups
        self._on_done(name, self._done[name])

    def waterfall(self) -> Waterfall:
        """The waterfall from this stopwatch's start until now."""
        return waterfall(self._intervals, self._started, self._clock())
