"""When each stage of a step was at work, and how many groups have passed it.

    with watch.stage("score", group.slot):
        ...
    watch.waterfall().exposed["score"]

Groups overlap, so a stage's time is that with at least one group in it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workflows.step.waterfall import StageInterval, Waterfall, waterfall


class Stopwatch:
    """Intervals by stage, by the running event loop's clock; `on_done(stage, groups)` hears of each group that passed
    one."""

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
        """So many more groups have passed the stage."""
        self._done[name] += groups
        self._on_done(name, self._done[name])

    def waterfall(self) -> Waterfall:
        """Of what has ended since this stopwatch was made, up to now."""
        return waterfall(self._intervals, self._started, self._clock())
