"""A short training over real hosts under faults: what its user sees, and whether it ends as the undisturbed one.

    python -m benchmarks.hosts --hosts 3 --faults cut,kill-raylet --seed 0 [--steps 6] [--runs N] [--store s3|local]
                               [--token] [--set KEY=VALUE] [--keep FOLDER] [--json FILE]

Hosts are namespaces of this machine (`tests/support/real_hosts.py`), with one real Ray at its default timing over them;
the driver and no other actor is on the head. The run of so many steps goes undisturbed first, then once under each
fault, dealt by the seed like cards; the fault strikes the host of an actor, once so many objects are committed.
`cut:60` lasts 60 s; without a number a cut lasts 20.

    cut          its link is down             kill-raylet  SIGKILL                 full-disk   64 KiB of /tmp are left
    half-open    what it sends is lost        lose-head    all on it is killed;    no-code     it has no raypoly
    slow         200 ms and 2 % loss, a way                the command again       other-code  raypoly 0.0.1

The last column are there before the start, on the last host; in the full disk's run the code is Ray's `working_dir`,
as in a job. With `silent-judge` (not by default) a server judges, and is cut off. Exit code 1 if a run is not equal, 2
where this machine can't have such hosts.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pyarrow.compute as pc

from benchmarks.chaos.disturbed import Disturbed, Outcome
from benchmarks.hosts import CREDENTIALS, hosts_folder
from raypoly import Run
from raypoly.core.errors import RaypolyError
from tests.support.kill_plan import Kill, kill_plans
from tests.support.ray_machines import Impossible
from tests.support.real_hosts import BEFORE, FAULTS, LASTING, SILENT, HeadDriver, RealHosts

SECONDS, MOST_LINES = 20.0, 12
_RETRY = re.compile(r"trying again, \d+ of \d+ retries are left")
_STEP = re.compile(r"^step \d+/")


@dataclass(frozen=True)
class Seen:
    """A run under a fault."""

    fault: str
    outcome: Outcome
    retries: int
    infra_trained: int | None
    """Rollouts of no verdict that have an advantage; None where there is no run to read."""
    lines: Sequence[str]
    """Those of its output that the undisturbed one has not."""

    def row(self) -> str:
        infra, twice = self.infra_trained, sum("and in journal/" in fault for fault in self.outcome.faults)
        equal = "missed" if self.outcome.missed else "yes" if not self.outcome.faults else "NO"
        numbers = f"{self.outcome.stood:>8.0f}{self.retries:>9}{self.outcome.starts:>8}{equal:>7}"
        return f"{self.fault:<14}{numbers}{twice:>7}{'?' if infra is None else infra:>7}"


def main() -> int:
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is put away
    try:
        with contextlib.ExitStack() as stack:
            folder = given.keep or Path(stack.enter_context(hosts_folder()))
            folder.mkdir(parents=True, exist_ok=True)
            seen = []
            for each in _runs(given, folder, stack):
                seen.append(each)
                print("\n".join([each.row(), *(f"    {line[:300]}" for line in each.lines[:MOST_LINES])]), flush=True)
    except Impossible as reason:
        print(f"benchmarks.hosts needs Linux, root and iproute2, to make namespaces: {reason}.", file=sys.stderr)
        return 2
    missed = sum(bool(each.outcome.missed) for each in seen[1:])
    equal = sum(not each.outcome.faults and not each.outcome.missed for each in seen[1:])
    print(
        f"\n{equal} of {len(seen) - 1} runs equal to the undisturbed one, {missed} without their fault; {given.store} "
        f"store, seed {given.seed}"
    )
    if given.json:
        given.json.write_text(json.dumps([vars(each) | {"outcome": vars(each.outcome)} for each in seen], indent=2))
    return int(any(each.outcome.faults or each.outcome.missed or each.infra_trained for each in seen))


def _runs(given: argparse.Namespace, folder: Path, stack: contextlib.ExitStack) -> Iterator[Seen]:
    """The undisturbed one first."""
    os.environ.update(CREDENTIALS)
    hosts = stack.enter_context(RealHosts(given.hosts, given.token, environment=CREDENTIALS))
    place = f"{folder}/run-{{}}"
    if given.store == "s3":
        from tests.support.s3_server import s3_server  # needs moto

        place = stack.enter_context(s3_server(hosts.network.address)).uri("hosts/run-{}")
    own = [f"train.steps={given.steps}", "train.checkpoint_every=2", "evaluate.every=0", "ray.dashboard=false"]
    overrides = [*own, "generator.engine=transformers", *given.set]
    if any(name.startswith(SILENT) for name in given.faults):
        url = stack.enter_context(hosts.judge_server())
        overrides += ["judge.name=openai", "judge.model=marker", "judge.cache_mib=0", f"judge.base_url={url}"]
    runs = len(given.faults) if given.runs is None else given.runs
    kills = [_planned(plan[0]) for plan in islice(kill_plans(given.seed, 1, given.faults), runs)]
    print(f"{'fault':<14}{'stood s':>8}{'retries':>9}{'starts':>8}{'equal':>7}{'twice':>7}{'infra':>7}", flush=True)
    usual: set[str] = set()
    for number, kill in enumerate([None, *kills]):
        driver = HeadDriver(place.format(number), folder / f"run-{number}.log", overrides)
        driver.hosts = hosts
        hosts.trouble = kill.kind if kill and kill.kind in BEFORE else ""
        driver.as_job = hosts.trouble == "full-disk"
        outcome = Disturbed(number, "", driver, hosts).run([kill] if kill else [], place.format(0) if kill else None)
        printed = driver.log().splitlines()
        told = [line for line in printed if kill and _shape(line) not in usual]
        usual |= {_shape(line) for line in printed if not kill}
        told += [fault.partition("\n")[0] for fault in outcome.faults]
        retries, infra = sum(bool(_RETRY.search(line)) for line in told), infra_trained(driver.place)
        lasts = f" {kill.seconds:g} s" if kill and kill.kind in (*LASTING, SILENT) else ""
        yield Seen(f"{kill.kind if kill else 'none'}{lasts}", outcome, retries, infra, told)


def _planned(kill: Kill) -> Kill:
    """With its duration from the name; what is there before is there from the start."""
    kind, _, seconds = kill.kind.partition(":")
    return replace(kill, kind=kind, seconds=float(seconds or SECONDS), after=0 if kind in BEFORE else kill.after)


def _shape(line: str) -> str:
    """A line without its numbers, and of a step's line only that it is one."""
    return "step" if _STEP.match(line) else re.sub(r"\d+", "0", line).strip()


def infra_trained(place: str) -> int | None:
    try:
        tables = [run.stored(step) for run in [Run(place)] for step in run.steps]
    except RaypolyError:
        return None
    rows = [table.filter(pc.equal(table.column("status"), "infra")) for table in tables]
    return sum(len(table.column("advantage").drop_null()) for table in rows)


def _faults(text: str) -> list[str]:
    names = text.split(",")
    if unknown := sorted({name.partition(":")[0] for name in names} - {*FAULTS, SILENT}):
        raise argparse.ArgumentTypeError(f"no such fault: {', '.join(unknown)}")
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument(
        "--faults", type=_faults, default=list(FAULTS), help=f"comma-separated, of: {', '.join((*FAULTS, SILENT))}"
    )
    parser.add_argument("--runs", type=int, help="under a fault each; default: one for each fault named")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6)
    store = "s3" if importlib.util.find_spec("moto") else "local"
    parser.add_argument("--store", choices=("s3", "local"), default=store, help="local: a folder that all hosts see")
    parser.add_argument("--token", action="store_true", help="Ray asks for a token")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the runs")
    parser.add_argument("--keep", type=Path, help="where runs and logs stay, not below /tmp; default: nowhere")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
