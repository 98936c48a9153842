"""Is this machine ready for a config, and each node of its cluster? No run is started, and nothing is left behind.

findings = examine_machine(load("configs/tiny.yaml", []))
[finding.detail for finding in findings if not finding.ok]
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile

from rich.console import Console
from rich.text import Text

from raypoly.core.config import Config
from raypoly.core.errors import CorruptData, JudgeRefused, JudgeUnavailable, LeaseHeld, RaypolyError, StorageError
from raypoly.core.text import duration
from raypoly.core.values import Evidence, Rollout, Verdict
from raypoly.planning.devices import existing_parent, this_machine
from raypoly.planning.preflight import asks_judge, check_room
from raypoly.run.run_identity import RunDirectory, resolve_run, storage_options
from raypoly.run.store import open_store, probe_lease
from raypoly.run.store.location import Location
from raypoly.run.store.store import NO_CONDITION, USE_OTHER
from raypoly.strategies.judge import build_judge, in_engine
from raypoly.strategies.judge.judge_keys import key_variable_names
from workflows.doctor.node_report import (
    ADD_ONE,
    PROGRAM,
    MachineFinding,
    NodeReport,
    attempt_all,
    examine_cluster,
    gpu_findings,
    read_pins,
    report_node,
    run_folder_findings,
    version_finding,
)

_SECONDS = 25.0  # how long storage and judge may take, in each of two rounds
_PATIENCE = 10.0
_ALONE = "none: RAY_ADDRESS is not set, and a start brings up a Ray of this machine's own"
_OTHER_PROGRAM = "def f(n):\n    return next(range(n + 1, n + 2))\n"


def examine_machine(config: Config) -> list[MachineFinding]:
    """The findings on this machine, and on the cluster of `RAY_ADDRESS`. Raises `UsageError` if there are no pins."""
    config, pins = _impatient(config), read_pins(config.generator.engine)
    names, cuda = tuple(pins), config.generator.placement != "cpu"
    here = report_node(config.scorer, names, cuda)
    directories: list[RunDirectory] = []
    others: list[NodeReport] = []

    def resolve() -> str:
        directories.append(resolve_run(config))
        return directories[0].uri

    found = [version_finding(here, here, pins), here.sandbox]
    found += attempt_all({"judge": partial(_ask_judge, config), "run.dir": resolve}, _SECONDS)
    for directory in directories:
        found += attempt_all(
            {"storage": partial(_try_storage, directory), "lease": partial(_free_lease, directory)}, _SECONDS
        )
    if os.environ.get("RAY_ADDRESS"):
        with _witness(directories) as file:
            cluster, others = examine_cluster(config, names, cuda, file)
        found += cluster
        if file is not None:
            found += run_folder_findings(config, directories[0].path, here, others)
    else:
        found.append(MachineFinding("cluster", True, _ALONE))
    for other in others:
        found += [version_finding(other, here, pins), other.sandbox]
    return found + gpu_findings(config, [here, *others])


def print_findings(findings: Sequence[MachineFinding], as_json: bool) -> bool:
    """Print a line for each, or JSON; returns whether all are ok."""
    sound = all(finding.ok for finding in findings)
    if as_json:
        state = "ok" if sound else "not ok"
        print(json.dumps({"state": state, "checks": [asdict(finding) for finding in findings]}, indent=2))
        return sound
    console, width = Console(), max(len(finding.what) for finding in findings)
    for finding in findings:
        mark = ("ok", "green") if finding.ok else ("NO", "red")
        line = Text.assemble(mark, f"  {finding.what:<{width}}  {finding.detail}")
        console.print(line, highlight=False, soft_wrap=True)
    return sound


def _impatient(config: Config) -> Config:
    """The config with short waits for storage and judge, and without kept answers."""
    run, judge = config.run, config.judge
    storage = {name: min(getattr(run, name), _PATIENCE) for name in ("storage_timeout", "storage_patience")}
    asked = {"timeout": min(judge.timeout, _PATIENCE), "cache_mib": 0}
    return config.model_copy(update={"run": run.model_copy(update=storage), "judge": judge.model_copy(update=asked)})


def _try_storage(directory: RunDirectory) -> str:
    """Do what a run does, in a folder aside that is removed. Raises `StorageError`, `CorruptData`, `UsageError`."""
    folder = directory.location.folder
    near = directory.location if folder is None else Location.parse(existing_parent(folder))
    store = open_store(near.child(f".raypoly-doctor-{os.getpid()}"), storage_options(directory.config))
    data = os.urandom(1 << 19)  # finds a disk that is all but full
    try:
        store.commit("first", b"")  # connects
        started = time.perf_counter()
        store.commit("commit", data)
        seconds = time.perf_counter() - started
        if store.read("commit") != data:
            raise CorruptData(f"{store.uri} does not hold what was just written there: use other storage.")
        replaced = folder is None and store.create("commit", b"another")
        store.delete("first")
        store.delete("commit")
        if replaced:
            raise StorageError(f"{store.uri} can't be written safely ({NO_CONDITION}); {USE_OTHER}.")
    finally:
        if store.location.folder is not None:
            shutil.rmtree(store.location.folder, ignore_errors=True)
    here = this_machine(directory.path)
    check_room(directory.config, here, remote=folder is None)
    free = f"free: {here.disk / 2**30:,.1f} GiB of disk, {here.memory / 2**30:,.1f} GiB of memory"
    return f"{1000 * seconds:,.1f} ms to write, sync and rename, read back whole; {free}"


@contextmanager
def _witness(directories: Sequence[RunDirectory]) -> Iterator[Path | None]:
    """A file where the run's folder will be; None if that is in remote storage or can't be had."""
    folder = directories[0].location.folder if directories else None
    if folder is None:
        yield None
        return
    with ExitStack() as stack:
        found = None
        with suppress(OSError):  # which the finding on storage tells
            file = stack.enter_context(NamedTemporaryFile(prefix=".raypoly-doctor-", dir=existing_parent(folder)))
            found = Path(file.name)
        yield found


def _free_lease(directory: RunDirectory) -> str:
    """Raises `LeaseHeld` if another driver holds the run, or may."""
    found = probe_lease(open_store(directory.location, storage_options(directory.config), make=False))
    if found is None:
        return "none yet"
    if found.lives is False:
        return f"epoch {found.epoch}, {found.summary}"
    advice = "wait for it or stop it" if found.lives else "see that it has ended; the next start takes over"
    raise LeaseHeld(f"{directory.uri} is {found.summary}: {advice}.")


def _ask_judge(config: Config) -> str:
    """Let the judge label two programs. Raises `RaypolyError` if it does not."""
    judge = config.judge
    if not asks_judge(config):
        return "this config asks none"
    if set(judge.members if judge.name == "ensemble" else [judge.name]) == {"structural"}:
        return "the structural judge needs no key and no server"
    if in_engine(judge):
        return "a model of your own needs no key and no server: `raypoly train --rehearse` tries it"
    asked, started = build_judge(judge), time.perf_counter()
    programs = (PROGRAM, _OTHER_PROGRAM)
    rollouts = [Rollout.of_text(f"```python\n{program}```", seed=seed) for seed, program in enumerate(programs)]
    try:
        asked.probe()  # one request without a second try: it finds a wrong key or an empty quota at once
        evidence = (Evidence(program, (), {}, "direct") for program in programs)
        asked.label(ADD_ONE, rollouts, [Verdict("passed", 1, 1, 0.0, evidence=each) for each in evidence])
    except (JudgeUnavailable, JudgeRefused) as error:
        places = [judge.api_key_file, *key_variable_names(judge)]
        key = ", ".join(filter(None, places)) or "none: judge.api_key_env names one"
        raise RaypolyError(f"{error} Look at its address, key ({key}) and quota: docs/judge.md.") from error
    return f"{asked!r} labelled two programs in {duration(time.perf_counter() - started)}"
