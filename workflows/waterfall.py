"""What a step waited for at each instant, from the intervals in which its stages were at work.

    found = waterfall(intervals, start, end)
    found.seconds["judge"]      # the judge was at work on some group
    found.exposed["judge"]      # ... and nothing that comes before it in PRIORITY was: the step waited for it

Every instant of the step belongs to one entry of `exposed`, so these add up to the step: to the first stage of
PRIORITY that is at work, or to `idle` where none is (the journal's commits, an actor that is being replaced, the
driver's own work). A pause of the judge is the judge at work.

The **tail** runs from the end of generation to the last group's labels (its verdicts, where nobody judges). Its
`exposed` part is what the last group alone costs: scoring or judging is exposed, and the group that entered scoring
last is the only one there. More scorers or a wider judge don't shorten that, quicker answers do; what of scoring and
judging is exposed beyond it is a queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GENERATE = "generate"
PRIORITY = (GENERATE, "learn", "judge", "score", "sync")
"""The stages, those first that a step can't do without: others hide behind them."""
IDLE = "idle"
HIDEABLE = ("score", "judge")
"""The stages that are meant to hide."""


@dataclass(frozen=True)
class Interval:
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
    """By stage of PRIORITY and `idle`: what the step waited for; adds up to `total`."""
    tail: Mapping[str, float | None]
    """`seconds` and `exposed`; None where nothing was generated (the journal held it all)."""


def waterfall(intervals: Sequence[Interval], start: float, end: float) -> Waterfall:
    """The waterfall of a step that lasted from `start` to `end`."""
    flows = [each for each in intervals if each.stage in HIDEABLE]
    last = _last_group(flows)
    seconds: Counter[str] = Counter()
    exposed = dict.fromkeys((*PRIORITY, IDLE), 0.0)
    alone = 0.0
    busy: Counter[str] = Counter()
    flowing: Counter[int | None] = Counter()
    now = start
    for time, change, each in [*_changes(intervals), (end, 0, None)]:
        time = min(max(time, start), end)
        length, now = time - now, time
        waited_for = next((stage for stage in PRIORITY if busy[stage]), IDLE)
        exposed[waited_for] += length
        seconds.update({stage: length for stage, count in busy.items() if count})
        if waited_for in HIDEABLE and {slot for slot, count in flowing.items() if count} == {last}:
            alone += length
        if each is not None:
            busy[each.stage] += change
            if each.stage in HIDEABLE:
                flowing[each.slot] += change
    generated = max((each.end for each in intervals if each.stage == GENERATE), default=None)
    if generated is None or not flows:
        return Waterfall({**seconds, "total": end - start}, exposed, {"seconds": None, "exposed": None})
    tail = {"seconds": max(0.0, max(each.end for each in flows) - generated), "exposed": alone}
    return Waterfall({**seconds, "total": end - start}, exposed, tail)


def _changes(intervals: Sequence[Interval]) -> list[tuple[float, int, Interval | None]]:
    """When a stage begins (+1) or ends (-1) to work on something, in order."""
    begins = [(each.start, 1, each) for each in intervals]
    ends = [(each.end, -1, each) for each in intervals]
    return sorted([*begins, *ends], key=lambda change: change[0])


def _last_group(flows: Sequence[Interval]) -> int | None:
    """The slot of the group that was the last to enter scoring (judging, where its verdicts were known)."""
    entered: dict[int | None, float] = {}
    for each in flows:
        entered[each.slot] = min(each.start, entered.get(each.slot, each.start))
    return max(entered, key=lambda slot: entered[slot], default=None)
