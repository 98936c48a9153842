"""What of scoring and judging a step really waits for, beside the same step with a barrier after each stage.

    python -m benchmarks.overlap [--steps 10] [--workers 16] [--at-once 256] [--real-time] [--json]

The product's own loop, stages, scorer pool, journal and stopwatch run over services that sleep (their times:
`benchmarks/overlaps/times.py`), once with the learner on a device of its own and once where it has to wait until the
engine is done. By default a virtual clock lets the seconds pass at once and the result depends on no machine.
`arrival` is what no run may do, the learner taking groups as they come: what it is quicker is the price of prompt
order. Exit code 1 where scoring and judging are exposed for more than 5 % of the overlapped steps beyond the last
group's tail.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.overlaps.clock import VirtualLoop
from benchmarks.overlaps.steps import VERSIONS, measured
from benchmarks.overlaps.times import Times

MOST_EXPOSED = 0.05
PLACEMENTS = {"own device": False, "shared device": True}
SHOWN = ("generate", "score", "judge", "learn", "sync", "idle")


@dataclass(frozen=True)
class Found:
    """Means over the steps of one version, in seconds."""

    total: float
    exposed: Mapping[str, float]
    tail: float
    """From the end of generation to the last group's labels."""
    in_tail: float
    """Scoring and judging exposed in the tail."""
    beyond: float
    """Scoring and judging exposed beyond it."""
    share: float
    """`beyond` of all seconds of the steps."""
    worst: float
    """That share in the step where it is largest."""


def steps(version: str, shared: bool, options: argparse.Namespace) -> Found:
    """So many steps of a version, each with times of its own."""
    rows = []
    for seed in range(options.steps):
        with asyncio.Runner(loop_factory=None if options.real_time else VirtualLoop) as runner:
            times = Times.drawn(seed, options.at_once)
            rows.append(runner.run(measured(version, times, options.workers, shared)))
    totals = [row["seconds"]["total"] for row in rows]
    beyond = [row["exposed"]["score"] + row["exposed"]["judge"] - row["tail"]["exposed"] for row in rows]
    return Found(
        total=statistics.mean(totals),
        exposed={stage: statistics.mean(row["exposed"][stage] for row in rows) for stage in SHOWN},
        tail=statistics.mean(row["tail"]["seconds"] for row in rows),
        in_tail=statistics.mean(row["tail"]["exposed"] for row in rows),
        beyond=statistics.mean(beyond),
        share=sum(beyond) / sum(totals),
        worst=max(part / whole for part, whole in zip(beyond, totals, strict=True)),
    )


def table(placement: str, found: Mapping[str, Found]) -> str:
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="each with service times of its own")
    parser.add_argument("--workers", type=int, default=16, help="scorers")
    parser.add_argument("--at-once", type=int, default=256, help="responses decoded beside each other, of 256")
    parser.add_argument("--real-time", action="store_true", help="true seconds: some four minutes for each step")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the tables")
    options = parser.parse_args(arguments)
    found = {
        placement: {version: steps(version, shared, options) for version in VERSIONS}
        for placement, shared in PLACEMENTS.items()
    }
    if options.json:
        print(json.dumps({placement: {v: asdict(one) for v, one in all_.items()} for placement, all_ in found.items()}))
    else:
        print("\n\n".join(table(placement, versions) for placement, versions in found.items()))
    sys.exit(0 if all(versions["overlapped"].share <= MOST_EXPOSED for versions in found.values()) else 1)


if __name__ == "__main__":
    main()
