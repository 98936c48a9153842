"""What of scoring and judging a step really waits for, beside the same step with a barrier after each stage.

    python -m benchmarks.overlap [--steps 10] [--workers 16] [--at-once 256] [--real-time] [--json]
    python -m benchmarks.overlap --turns [--steps 10]

The product's own loop, stages, scorer pool, journal and stopwatch run over services that sleep (their times:
`tests/support/service_times.py`), once with the learner on a device of its own and once where it has to wait until the
engine is done. By default a virtual clock lets the seconds pass at once and the result depends on no machine.
`arrival` is what no run may do, the learner taking groups as they come: what it is quicker is the price of prompt
order. Exit code 1 where scoring and judging are exposed for more than 5 % of the overlapped steps beyond the last
group's tail.

The last line is `train.ahead`, with a learner that takes as long as the engine, each on a device of its own. Exit code
1 below 1.5 times the steps.

`--turns`: a step's conversations over an engine that is never full, and tools of 0 to 10 s: the sampling phase beside
its longest conversation, each rollout going on by itself, and with a barrier each turn. Exit code 1 above 1.15.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from tests.support.exposed_seconds import MOST_EXPOSED, SHOWN, ExposedSeconds, compare_ahead, measure_exposed
from tests.support.service_times import GENERATION
from tests.support.timed_training import VERSIONS
from tests.support.timed_turns import measure_turns

PLACEMENTS = {"own device": False, "shared device": True}
MOST_TURNS = 1.15
LEAST_FASTER = 1.5
"""What `train.ahead` has to bring where sampling and learning take equal time."""


def table(placement: str, found: Mapping[str, ExposedSeconds]) -> str:
    """For a terminal: what the mean step waited for, in seconds."""
    head = f"learner, engine: {placement:14}" + "".join(f"{name:>9}" for name in (*SHOWN, "step"))
    lines = [f"{head}   tail: length  exposed   beyond it: exposed  worst step"]
    for version, one in found.items():
        seconds = "".join(f"{value:9.2f}" for value in (*one.exposed.values(), one.total))
        tail = f"{one.tail:15.2f}{one.in_tail:9.2f}"
        lines.append(f"{version:31}{seconds}{tail}{one.beyond:12.2f} {one.share:6.1%}{one.worst:12.1%}")
    overlapped, barrier, arrival = (found[version].total for version in VERSIONS)
    lines.append(
        f"barrier / overlapped {barrier / overlapped:.2f}; prompt order costs {overlapped - arrival:.2f} s a step, "
        f"{(overlapped - arrival) / overlapped:.1%}"
    )
    return "\n".join(lines)


def turns(steps: int) -> bool:
    """Print a line for each way, and say whether none waits for another one's tools."""
    print("generator.turns   sampling   longest conversation   times: mean   worst")
    worst = {}
    for how in ("free", "ordered"):
        found = [measure_turns(how, seed) for seed in range(steps)]
        ratios = [one.seconds / one.longest for one in found]
        seconds, longest = (sum(getattr(one, name) for one in found) / steps for name in ("seconds", "longest"))
        worst[how] = max(ratios)
        print(f"{how:15}{seconds:11.1f}{longest:23.1f}{sum(ratios) / steps:14.3f}{worst[how]:8.3f}")
    return worst["free"] <= MOST_TURNS


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="each with service times of its own")
    parser.add_argument("--workers", type=int, default=16, help="scorers")
    parser.add_argument("--at-once", type=int, default=256, help="responses decoded beside each other, of 256")
    parser.add_argument("--real-time", action="store_true", help="true seconds: some four minutes for each step")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the tables")
    parser.add_argument("--turns", action="store_true", help="conversations in place of groups")
    options = parser.parse_args(arguments)
    if options.turns:
        sys.exit(0 if turns(options.steps) else 1)
    setting = (options.steps, options.workers, options.at_once, options.real_time)
    found = {
        placement: {version: measure_exposed(version, shared, *setting) for version in VERSIONS}
        for placement, shared in PLACEMENTS.items()
    }
    without, ahead = compare_ahead(options.steps, options.workers, options.at_once)
    if options.json:
        tables = {placement: {v: asdict(one) for v, one in all_.items()} for placement, all_ in found.items()}
        print(json.dumps({**tables, "ahead": {"0": without, "1": ahead}}))
    else:
        print("\n\n".join(table(placement, versions) for placement, versions in found.items()))
        print(
            f"\ntrain.ahead, sampling and learning {GENERATION:.0f} s each: 0 {without:.2f} s a step, 1 {ahead:.2f} s, "
            f"{without / ahead:.2f} times as fast"
        )
    hidden = all(versions["overlapped"].share <= MOST_EXPOSED for versions in found.values())
    sys.exit(0 if hidden and without >= LEAST_FASTER * ahead else 1)


if __name__ == "__main__":
    main()
