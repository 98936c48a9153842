"""A step's times: when each stage works, how many groups have passed it, and what the step waits for.

    with watch.stage("score", group.slot):
        ...
    found = watch.waterfall()
    found.seconds["judge"]      # the judge worked on some group
    found.exposed["judge"]      # ... and no stage before it in PRIORITY worked: the step waited for it

Groups overlap. Each instant of the step belongs to one entry of `exposed`: the first stage of PRIORITY that works, or
`idle` if none does (commits, the replacement of an actor, the driver's own work). A pause of the judge is its work.

The **tail** runs from the end of generation to the labels (without a judge: verdicts) of the group that was generated
last. Only the learner's work on other groups can hide that group's scoring and judging.

With `train.ahead` a step has its **turn** from the end of the step before to its own. `exposed` and `total` are of that
turn, in which it waits for the next step's generation too; `seconds` are the step's own, whenever they were.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

_GENERATE = "generate"
_CROSS = "cross"
PRIORITY = (_GENERATE, "learn", _CROSS, "judge", "score", "sync")
"""Stages by priority: later ones hide behind earlier ones; a user's own come last."""
IDLE = "idle"
HIDEABLE = ("score", "judge")


@dataclass(frozen=True)
class StageInterval:
    """Seconds of one clock."""

    stage: str
    start: float
    end: float
    slot: int | None = None


@dataclass(frozen=True)
class Waterfall:
    seconds: Mapping[str, float]
    """By stage with at least one group in it, and `total`."""
    exposed: Mapping[str, float]
    """Time that the step waited for, by stage of PRIORITY (without an unused `cross`) and `idle`; sums to `total`."""
    tail: Mapping[str, float | None]
    """Its `seconds`, and the `exposed` ones of scoring and judging; None if nothing was generated."""


def waterfall(
    intervals: Sequence[StageInterval], start: float, end: float, ahead: Sequence[StageInterval] = ()
) -> Waterfall:
    """Of a turn from `start` to `end`. `ahead`: of the step that is sampled meanwhile."""
    tail = _tail(intervals)
    seconds = _own_seconds(intervals)
    waited = [*intervals, *(each for each in ahead if each.stage == _GENERATE)]
    at_work = {each.stage for each in waited}
    order = (*PRIORITY, *sorted(at_work - {*PRIORITY}))
    exposed = {name: 0.0 for name in (*order, IDLE) if name in at_work or name != _CROSS}
    exposed_tail = 0.0
    busy: Counter[str] = Counter()
    now = start
    for time, stage, change in [*_changes(_since(waited, start)), (end, IDLE, 0)]:
        # until `time` nothing changed: all of the length belongs to whoever was at work
        length, since, now = time - now, now, time
        waited_for = next((name for name in order if busy[name]), IDLE)
        exposed[waited_for] += length
        if tail is not None and waited_for in HIDEABLE and tail[0] <= since < tail[1]:
            exposed_tail += length  # the tail begins and ends with stages, so no length is in it in part
        busy[stage] += change
    told = (
        {"seconds": None, "exposed": None} if tail is None else {"seconds": tail[1] - tail[0], "exposed": exposed_tail}
    )
    return Waterfall({**seconds, "total": end - start}, exposed, told)


def _own_seconds(intervals: Sequence[StageInterval]) -> Mapping[str, float]:
    """By stage, those with at least one group in it."""
    seconds: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    now = 0.0
    for time, stage, change in _changes(intervals):
        length, now = time - now, time
        seconds.update({name: length for name, count in busy.items() if count})
        busy[stage] += change
    return seconds


def _since(intervals: Sequence[StageInterval], start: float) -> list[StageInterval]:
    return [replace(each, start=max(each.start, start)) for each in intervals if each.end > start]


def _changes(intervals: Sequence[StageInterval]) -> list[tuple[float, str, int]]:
    begins = [(each.start, each.stage, 1) for each in intervals]
    ends = [(each.end, each.stage, -1) for each in intervals]
    return sorted([*begins, *ends], key=lambda change: change[0])


def _tail(intervals: Sequence[StageInterval]) -> tuple[float, float] | None:
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
    """Records intervals by stage. `on_done(stage, groups)` is called when groups have passed one."""

    def __init__(
        self,
        on_done: Callable[[str, int], None] = lambda stage, groups: None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock`: in place of the running event loop's."""
        self._on_done = on_done
        self.counts: Counter[str] = Counter()
        """Of whatever else happened in the step, by the name of its metric."""
        self._done: Counter[str] = Counter()
        self._intervals: list[StageInterval] = []
        self._clock = clock or asyncio.get_running_loop().time
        self.ahead: Stopwatch | None = None
        """Of the step that is sampled in this one's turn."""
        self.begin_turn()

    def begin_turn(self) -> None:
        self._started = self._clock()

    @contextmanager
    def stage(self, name: str, slot: int | None = None) -> Iterator[None]:
        since = self._clock()
        try:
            yield
        finally:
            self._intervals.append(StageInterval(name, since, self._clock(), slot))

    def done(self, name: str, groups: int = 1) -> None:
        self._done[name] += groups
        self._on_done(name, self._done[name])

    def again(self, name: str) -> None:
        """Count the stage's groups anew."""
        self._done[name] = 0

    def waterfall(self) -> Waterfall:
        ahead = () if self.ahead is None else self.ahead._intervals
        return waterfall(self._intervals, self._started, self._clock(), ahead)
