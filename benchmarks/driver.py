"""What a step costs the driver's own process: CPU a rollout, seconds, memory, at three sizes.

    python -m benchmarks.driver [--groups 1024] [--rollouts 16] [--scorers 1000] [--tokens 1000] [--rounds 1] [--json]

The product's own loop, stages, scorer pool, journal and metrics run a whole step over services that sleep
(`tests/support/driver_cost.py`), for an eighth, a quarter and all of the groups, each in a process of its own after a
tiny step that loads the modules. What the services hand over is made in that process and is counted: some 0.07 ms of
CPU a rollout. What Ray takes to bring it is not: no actor runs. Of several rounds the one of the least CPU is shown.
Exit code 1 where a size takes 1 ms of CPU a rollout or more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict

from tests.support.driver_cost import DriverCost

MOST_CPU_MS = 1.0
"""Of a rollout."""
SHARES = (8, 4, 1)
"""Of the groups: an eighth, a quarter, all."""
MIB = 2**20


def measured(groups: int, rollouts: int, scorers: int, tokens: int) -> DriverCost:
    """One step of a process of its own, whose peak of memory is the step's."""
    sizes = map(str, (groups, rollouts, scorers, tokens))
    command = [sys.executable, "-m", "tests.support.driver_cost", *sizes]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    return DriverCost(**json.loads(done.stdout))


def table(found: Sequence[DriverCost]) -> str:
    """For a terminal."""
    lines = [f"{'rollouts':>9}{'CPU ms each':>13}{'CPU s':>8}{'seconds':>9}{'MiB before':>12}{'MiB at most':>13}"]
    lines += [
        f"{one.rollouts:9,}{one.cpu_ms:13.2f}{one.cpu:8.1f}{one.wall:9.1f}"
        f"{one.before / MIB:12.0f}{one.peak / MIB:13.0f}"
        for one in found
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1024, help="of the largest step")
    parser.add_argument("--rollouts", type=int, default=16, help="of a group, more than the 4 of an objective's set")
    parser.add_argument("--scorers", type=int, default=1000, help="scorer actors")
    parser.add_argument("--tokens", type=int, default=1000, help="of a response")
    parser.add_argument("--rounds", type=int, default=1, help="how often each size is measured")
    parser.add_argument("--json", action="store_true", help="one JSON list in place of the table")
    given = parser.parse_args(arguments)
    found = []
    for groups in dict.fromkeys(max(1, given.groups // share) for share in SHARES):
        rounds = [measured(groups, given.rollouts, given.scorers, given.tokens) for _ in range(given.rounds)]
        found.append(min(rounds, key=lambda one: one.cpu))
    print(json.dumps([asdict(one) for one in found]) if given.json else table(found))
    sys.exit(0 if all(one.cpu_ms < MOST_CPU_MS for one in found) else 1)


if __name__ == "__main__":
    main()
