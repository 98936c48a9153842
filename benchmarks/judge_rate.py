"""How much of a server's rate limit a shared judge uses, and how many of its requests are answered 429.

    python -m benchmarks.judge_rate [--quick] [--workflows 1 4 16] [--limits requests tokens both] [--kinds ...]
                                    [--minutes 2] [--at-once 3]

A server in a process of its own enforces limits over loopback and answers after 0.3 to 8 s; workflows of one job, or of
two, ask it through the one judge actor of a Ray cluster, in bursts. Counted by the server: the share of the tighter
limit that is used after the first minute, and the share of 429 from then on and from the start. Exit code 1 where the
use is below 95 %, more than 1 % are answered 429, or a label is wrong. It is nearly all waiting, in real minutes; on a
machine with no processor to spare (column `stall s`: how long the server itself was kept waiting) it says little.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import ray

from tests.support.limited_server import ServerLog, running_limited_server
from tests.support.rate_enforcement import KINDS
from workflows.startup.ray_cluster import local_ray

NEEDED_USE, MOST_REFUSED = 0.95, 0.01
LIMITS = {
    "both": (500, 200_000),
    "requests": (500, 100_000_000),
    "tokens": (100_000, 1_000_000),
    "fast": (3000, 100_000_000),
}
"""Requests and tokens a minute: tier 1 of gpt-4.1-mini, and those where one kind alone can be the tighter."""
SECONDS = (0.3, 8.0)
_MEAN = 2.4
"""Seconds of an answer on the average."""
_TOKENS = 400
"""Of a request with short instructions, about and at least."""
_WARM_UP = 60.0


@dataclass(frozen=True)
class Case:
    """One server, and who asks it."""

    limits: str
    kind: str
    tells: bool
    workflows: int
    jobs: int

    @property
    def name(self) -> str:
        word = "headers" if self.tells else "caps"
        return f"{self.workflows:>9} {self.jobs:>4}  {self.limits:<8} {self.kind:<8} {word:<7}"


@dataclass(frozen=True)
class Found:
    """What the server counted."""

    use: float
    """Of the tighter limit, after the first minute."""
    refused: float
    """Share of requests answered 429, after the first minute."""
    refused_in_all: float
    requests: int
    """Requests a minute, after the first."""
    wrong: int
    """Labels that were not the right ones."""
    stall: float
    """Longest time in seconds that the machine kept the server waiting for a processor."""

    @property
    def kept(self) -> bool:
        return self.use >= NEEDED_USE and self.refused <= MOST_REFUSED and not self.wrong


def measured(log: ServerLog, limits: tuple[int, int], minutes: int, wrong: int = 0) -> Found:
    """Use and refusals from the first request on; a first minute apart."""
    start = log.served[0][0] + _WARM_UP
    end = start + 60.0 * minutes
    steady = [tokens for at, tokens in log.served if start <= at < end]
    refused = sum(start <= at < end for at in log.refused)
    used = len(steady) / minutes / limits[0], sum(steady) / minutes / limits[1]
    early = sum(at < end for at, _ in log.served), sum(at < end for at in log.refused)
    return Found(
        use=max(used),
        refused=refused / max(1, refused + len(steady)),
        refused_in_all=early[1] / max(1, sum(early)),
        requests=len(steady) // minutes,
        wrong=wrong,
        stall=max(log.stalled, default=0.0),
    )


def run(case: Case, address: str, folder: Path, minutes: int) -> Found:
    """One case in real time."""
    requests, tokens = LIMITS[case.limits]
    in_flight = int(2.5 * _MEAN * min(requests, tokens / _TOKENS) / 60) + 32
    config = {
        "name": "openai",
        "model": "marker",
        "cache_dir": str(folder),
        "prompt_file": str(_instructions(folder)),
        "concurrency": max(64, in_flight),
        "requests_per_minute": None if case.tells else requests,
        "tokens_per_minute": None if case.tells else tokens,
    }
    with running_limited_server(case.kind, requests, tokens, case.tells, SECONDS) as server:
        share = case.workflows // case.jobs, max(4, in_flight // case.workflows)
        seconds = _WARM_UP + 60 * minutes + 10  # what it takes to start is not measured
        load = [sys.executable, "-m", "benchmarks.judge_rates.load", "--seconds", str(seconds)]
        load += ["--workflows", str(share[0]), "--groups", str(share[1])]
        load += ["--config", json.dumps({**config, "base_url": server.url})]
        environment = {**os.environ, "RAY_ADDRESS": address}
        jobs = [
            subprocess.Popen([*load, "--name", f"j{job}"], stdout=subprocess.PIPE, text=True, env=environment)
            for job in range(case.jobs)
        ]
        said = [json.loads(job.communicate(timeout=seconds + 300)[0].splitlines()[-1]) for job in jobs]
        return measured(server.stop(), LIMITS[case.limits], minutes, sum(each["failures"] for each in said))


def _instructions(folder: Path) -> Path:
    """Short ones, so that requests can be the tighter limit."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "instructions.txt"
    path.write_text("Cluster the programs by strategy. Programs stand between <<<program 1 key ...>>> borders.")
    return path


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """All that were asked for; two jobs wherever there are workflows enough."""
    if options.quick:
        yield from (Case("both", "smooth", True, 4, 2), Case("requests", "sliding", True, 4, 1))
        return
    for limits, kind, workflows in product(options.limits, options.kinds, options.workflows):
        yield Case(limits, kind, True, workflows, jobs=1 if workflows == 1 else 2)
    for limits, kind in product(options.limits, options.kinds):
        yield Case(limits, kind, False, max(options.workflows), jobs=1)


def table(case: Case, found: Found) -> str:
    mark = "" if found.kept else "  NOT KEPT"
    return (
        f"{case.name} {found.requests:>6} {100 * found.use:>7.1f} {100 * found.refused:>7.2f} "
        f"{100 * found.refused_in_all:>9.2f} {found.wrong:>6} {found.stall:>8.1f}{mark}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two cases")
    parser.add_argument("--workflows", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--limits", nargs="+", choices=list(LIMITS), default=["both", "requests", "tokens"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--minutes", type=int, default=2, help="measured, after the first")
    parser.add_argument("--at-once", type=int, default=3, help="cases at the same time, each with its own server")
    options = parser.parse_args()
    print(f"{'workflows':>9} {'jobs':>4}  {'limits':<8} {'enforced':<8} {'told by':<7} {'a min':>6} {'use %':>7} "
          f"{'429 %':>7} {'429 % all':>9} {'wrong':>6} {'stall s':>8}")  # fmt: skip
    with (
        tempfile.TemporaryDirectory(prefix="rp-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        local_ray(_temp_dir=folder, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR),
    ):
        address = ray.get_runtime_context().gcs_address
        kept = True
        with ThreadPoolExecutor(options.at_once) as pool:
            chosen = list(cases(options))
            folders = [Path(folder) / f"case-{number}" for number in range(len(chosen))]
            found = pool.map(lambda case, own: run(case, address, own, options.minutes), chosen, folders)
            for case, one in zip(chosen, found, strict=True):
                print(table(case, one), flush=True)
                kept = kept and one.kept
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
