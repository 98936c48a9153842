"""What a run reaches from this machine: its storage with the lease, and its judge. Each check returns what there is."""

from __future__ import annotations

import os
import shutil
import statistics
import time

import numpy as np

from raypoly.core.config import Config
from raypoly.core.errors import CorruptData, JudgeRefused, JudgeUnavailable, LeaseHeld, RaypolyError
from raypoly.core.values import Evidence, Rollout, Verdict
from raypoly.planning.free_resources import existing_parent, this_machine
from raypoly.planning.preflight import asks_judge, check_room
from raypoly.run.run_identity import RunDirectory, storage_options
from raypoly.run.store import open_store
from raypoly.run.store.location import Location
from raypoly.run.store.open_store import probe_lease
from raypoly.run.store.store import Store
from raypoly.strategies.judge import build_judge, key_variable_names
from workflows.doctor.node_report import ADD_ONE, PROGRAM

_PATIENCE = 10.0
_COMMITS = 5
_OTHER_PROGRAM = "def f(n):\n    return next(range(n + 1, n + 2))\n"


def impatient(config: Config) -> Config:
    """The config with short waits for storage and judge, and without kept answers."""
    run, judge = config.run, config.judge
    storage = {name: min(getattr(run, name), _PATIENCE) for name in ("storage_timeout", "storage_patience")}
    asked = {"timeout": min(judge.timeout, _PATIENCE), "cache_mib": 0}
    return config.model_copy(update={"run": run.model_copy(update=storage), "judge": judge.model_copy(update=asked)})


def try_storage(directory: RunDirectory) -> str:
    """Do what a run does, in a folder aside that is removed. Raises `StorageError`, `CorruptData`, `UsageError`."""
    folder = directory.location.folder
    near = directory.location if folder is None else Location.parse(existing_parent(folder))
    store = open_store(near.child(f".raypoly-doctor-{os.getpid()}"), storage_options(directory.config))
    keys = [f"commit-{number}" for number in range(_COMMITS)]
    try:
        seconds = statistics.median(_commit(store, key) for key in keys)
        remark = _try_condition(store, keys[0]) if folder is None else ""
        for key in keys:
            store.delete(key)
    finally:
        if store.location.folder is not None:
            shutil.rmtree(store.location.folder, ignore_errors=True)
    here = this_machine(directory.path)
    check_room(directory.config, here, remote=folder is None)
    free = f"free: {here.disk / 2**30:,.1f} GiB of disk, {here.memory / 2**30:,.1f} GiB of memory"
    return f"{1000 * seconds:,.1f} ms to write, sync and rename, read back whole{remark}; {free}"


def _commit(store: Store, key: str) -> float:
    """Seconds of a commit."""
    data, started = os.urandom(1 << 16), time.perf_counter()
    store.commit(key, data)
    seconds = time.perf_counter() - started
    if store.read(key) != data:
        raise CorruptData(f"{store.place(key)} does not hold what was just written there: use other storage.")
    return seconds


def _try_condition(store: Store, taken: str) -> str:
    """What becomes of a write that only creates, to a key that is taken."""
    if store.conditional and not store.create(taken, b"another"):
        return ", conditional writes"
    return ", no conditional writes (a start waits some seconds for its lease)"


def free_lease(directory: RunDirectory) -> str:
    """Raises `LeaseHeld` if another driver holds the run, or may."""
    found = probe_lease(open_store(directory.location, storage_options(directory.config), make=False))
    if found is None:
        return "none yet"
    if found.lives is False:
        return f"epoch {found.epoch}, {found.summary}"
    advice = "wait for it or stop it" if found.lives else "see that it has ended; the next start takes over"
    raise LeaseHeld(f"{directory.uri} is {found.summary}: {advice}.")


def ask_judge(config: Config) -> str:
    """Let the judge label two programs. Raises `RaypolyError` if it does not."""
    judge = config.judge
    if not asks_judge(config):
        return "this config asks none"
    if set(judge.members if judge.name == "ensemble" else [judge.name]) == {"structural"}:
        return "the structural judge needs no key and no server"
    asked, started = build_judge(judge), time.perf_counter()
    nothing, programs = np.zeros(0, np.int32), (PROGRAM, _OTHER_PROGRAM)
    rollouts = [
        Rollout(nothing, nothing, nothing.astype(np.float32), f"```python\n{program}```", "stop", seed, 0)
        for seed, program in enumerate(programs)
    ]
    try:
        asked.probe()  # one request without a second try: it finds a wrong key or an empty quota at once
        evidence = (Evidence(program, (), {}, "direct") for program in programs)
        asked.label(ADD_ONE, rollouts, [Verdict("passed", 1, 1, 0.0, evidence=each) for each in evidence])
    except (JudgeUnavailable, JudgeRefused) as error:
        places = [judge.api_key_file, *key_variable_names(judge)]
        key = ", ".join(filter(None, places)) or "none: judge.api_key_env names one"
        raise RaypolyError(f"{error} Look at its address, key ({key}) and quota: docs/judge.md.") from error
    return f"{asked!r} labelled two programs in {time.perf_counter() - started:.1f} s"
