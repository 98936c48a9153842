"""Jobs as people run them: submitted from two hosts at once, stopped, and submitted again from a third.

    python -m benchmarks.hosts.jobs [--steps 6] [--stop-after 12] [--pictures FOLDER] [--keep FOLDER]

Three hosts (`tests/support/real_hosts.py`) with a Ray that asks for a token, and S3. No host has raypoly installed: the
jobs bring it by `--working-dir`. Hosts b and c submit one run each. The first run is stopped from host c once it has
committed so many objects, and the head submits it again by the command that its log ends with. It must end with the
weights of the other run. `--pictures` needs Chromium: the dashboard's pages while both train. Exit code 1 where a
promise did not hold, 2 where this machine can't have such hosts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.hosts import CREDENTIALS, hosts_folder
from raypoly import Run
from raypoly.run.store import open_store
from tests.support.chromium import Chromium
from tests.support.local_driver import wait_for
from tests.support.ray_machines import Impossible
from tests.support.real_hosts import RealHost, RealHosts
from tests.support.run_differences import run_differences
from tests.support.s3_server import s3_server

PATIENCE = 900.0
SHOWN = ("'run': 'run-one'", "'reward': '0.")
PAGES = {"jobs": "#/jobs", "job": "#/jobs/{}", "actors": "#/actors"}


class Jobs:
    """`ray job`, given on any host."""

    def __init__(self, hosts: RealHosts) -> None:
        self.hosts, self.dashboard = hosts, hosts.dashboard_address

    def say(self, host: RealHost, command: str, *words: str) -> str:
        """What `ray job command ...` prints there."""
        given = [*host.inside(), "ray", "job", command, f"--address={self.dashboard}", *words]
        done = subprocess.run(given, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE)
        if done.returncode:
            raise RuntimeError(f"`ray job {command}` on {host.name}: {done.stdout[-1500:]}")
        return done.stdout

    def submit(self, host: RealHost, name: str, *command: str) -> None:
        self.say(host, "submit", "--no-wait", f"--submission-id={name}", "--working-dir", ".", "--", *command)

    def state(self, name: str) -> str:
        told = self.say(self.hosts.head, "status", name)
        found = re.search(rf"{name}'.* (pending|running|stopped|succeeded|failed)", told, re.IGNORECASE)
        return found[1].upper() if found else told

    def log(self, name: str) -> str:
        return self.say(self.hosts.head, "logs", name)

    def end(self, name: str, state: str) -> None:
        """Wait until it has ended in this state."""
        wait_for(lambda: self.state(name) not in ("PENDING", "RUNNING"))
        if (found := self.state(name)) != state:
            raise RuntimeError(f"job {name} is {found}, not {state}: {self.log(name)[-1500:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--stop-after", type=int, default=12)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--keep", type=Path, help="where the jobs' logs stay")
    given = parser.parse_args()
    os.environ.update(CREDENTIALS)
    try:
        with contextlib.ExitStack() as stack:
            folder = given.keep or Path(stack.enter_context(hosts_folder()))
            folder.mkdir(parents=True, exist_ok=True)
            hosts = stack.enter_context(RealHosts(3, token=True, environment=CREDENTIALS, dashboard=True))
            hosts.restore()
            place = stack.enter_context(s3_server(hosts.network.address)).uri("jobs/run-{}")
            missing = list(_played(Jobs(hosts), place, folder, given))
    except Impossible as reason:
        print(f"benchmarks.hosts.jobs needs Linux, root and iproute2, to make namespaces: {reason}.", file=sys.stderr)
        return 2
    print("\n".join(missing) or "all of it held")
    return int(bool(missing))


def _played(jobs: Jobs, place: str, folder: Path, given: argparse.Namespace) -> Iterator[str]:
    """What did not hold, in sentences."""
    head, b, c = jobs.hosts.all
    own = [f"train.steps={given.steps}", "train.checkpoint_every=2", "evaluate.every=0", "scorer.workers=1"]
    train = ["python", "-m", "raypoly.train", *own, "generator.engine=transformers"]
    started = time.monotonic()
    for host, name in ((b, "one"), (c, "two")):
        jobs.submit(host, name, *train, f"run.dir={place.format(name)}")
    wait_for(lambda: _commits(place.format("one")) >= given.stop_after)
    print(f"{time.monotonic() - started:.0f} s: both train", flush=True)
    wait_for(lambda: all(said in jobs.say(b, "list") for said in SHOWN))
    if given.pictures:
        yield from _pictures(jobs, given.pictures)
    jobs.say(c, "stop", "one")
    jobs.end("one", "STOPPED")
    (folder / "one.log").write_text(log := jobs.log("one"))
    resume = re.findall(r"Resume with: ray job submit --working-dir \. -- (.*)", log)
    if not resume:
        yield "the stopped job's log has no command to resume with"
    again = shlex.split(resume[-1]) if resume else [*train, f"run.dir={place.format('one')}"]
    before = _commits(place.format("one"))
    print(f"{time.monotonic() - started:.0f} s: stopped after {before} commits; the head submits it again", flush=True)
    jobs.submit(head, "one-again", *again)
    for name in ("two", "one-again"):
        jobs.end(name, "SUCCEEDED")
        (folder / f"{name}.log").write_text(jobs.log(name))
        print(f"{time.monotonic() - started:.0f} s: {name} has ended", flush=True)
    yield from run_differences(Run(place.format("one")), Run(place.format("two")))


def _commits(place: str) -> int:
    store = open_store(place, make=False)
    return len([name for name in store.list("journal/") if name.endswith(".arrow")]) + 8 * len(store.list("rollouts/"))


def _pictures(jobs: Jobs, folder: Path) -> Iterator[str]:
    """Pages as a browser shows them; each must say the run's name, the first two its step and reward."""
    folder.mkdir(parents=True, exist_ok=True)
    token = jobs.hosts.head.environment["RAY_AUTH_TOKEN"]
    with Chromium() as browser:
        browser.open(jobs.dashboard)
        browser.run(f"document.cookie = 'ray-authentication-token={token}; path=/'")
        for name, page in PAGES.items():
            browser.open(f"{jobs.dashboard}/?{name}{page.format('one')}", width=1600)
            with contextlib.suppress(AssertionError):  # it is told below
                wait_for(lambda: "run-one" in browser.run("document.body.innerText"), 30)
            time.sleep(2)  # the rest of it
            text = browser.run("document.body.innerText")
            browser.picture(folder / f"dashboard-{name}.png", whole=False)
            wanted = ("run-one",) if name == "actors" else ("run-one", "step", "reward")
            yield from (f"the dashboard's page {page} does not show {said}" for said in wanted if said not in text)


if __name__ == "__main__":
    sys.exit(main())
