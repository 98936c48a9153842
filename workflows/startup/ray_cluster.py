"""Ray for a run: the cluster that this process belongs to, else a local one of its own."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import AuthenticationError, RpcError

from actors import DRIVER_VERSION, ray_internals
from raypoly.algorithms import objectives
from raypoly.core import __version__
from raypoly.core.config import Config, ScorerConfig
from raypoly.core.errors import RaypolyError
from raypoly.core.plugins import load_plugin
from raypoly.run.sinks import WANDB_SECRETS
from raypoly.run.store.lease import is_alive
from raypoly.strategies.judge.judge_keys import asked_judges, key_variable_names

_AUTHENTICATION = "RAY_AUTH_MODE"
_ADDRESS = re.compile(r"(?:\w+://)?(?P<host>[^:/]+):(?P<port>\d+)")
_PORT_SECONDS = 3.0
# Seconds after each look at a closed port: a head that restarts opens it again.
_PORT_WAITS = (0.5, 1.0, 2.0, 4.0, 0.0)
ACTOR_CPUS = 0.1
"""CPUs that Ray reserves for an actor. The stages of a step take turns, so two cores are enough for all."""


def joins_cluster() -> bool:
    return bool(os.environ.get("RAY_ADDRESS"))


@contextmanager
def connect_ray(config: Config, namespace: str) -> Iterator[None]:
    """Inside, Ray is connected: the cluster of `RAY_ADDRESS`, else a local one in a temporary folder."""
    ray_internals.never_start_by_itself()  # a thread of a run that has ended may still call Ray
    modules = user_modules(config)
    common: dict[str, Any] = {
        "namespace": namespace,
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "runtime_env": {"py_modules": modules} if modules else {},
    }
    if joins_cluster():
        with _own_authentication():
            told = {"env_vars": {DRIVER_VERSION: __version__}}
            _join_cluster(common | {"runtime_env": {**common["runtime_env"], **told}})
            try:
                yield
            finally:
                ray.shutdown()
        return
    _remove_stale_folders()
    # AF_UNIX paths are short: Ray's sockets lie some 60 characters below this folder.
    with (
        tempfile.TemporaryDirectory(prefix=f"rp-{os.getpid()}-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        _reaper(folder) as watch,
    ):
        others = descendants(os.getpid())  # the caller's own, and the reaper
        hidden = [*key_variable_names(config.judge), *WANDB_SECRETS]
        with local_ray(hidden, _temp_dir=folder, include_dashboard=config.ray.dashboard, **common):
            watch(descendants(os.getpid()) - others)
            yield


@contextmanager
def _without_variables(names: Sequence[str]) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


@contextmanager
def _own_authentication() -> Iterator[None]:
    """Inside, a Ray that starts or is joined may set the mode; afterwards it is as before, for another Ray."""
    before = os.environ.get(_AUTHENTICATION)
    try:
        yield
    finally:
        os.environ[_AUTHENTICATION] = before or "disabled"
        ray_internals.forget_authentication()
        if before is None:
            del os.environ[_AUTHENTICATION]


def _join_cluster(options: dict[str, Any]) -> None:
    address = os.environ["RAY_ADDRESS"]
    if address.startswith("http"):
        raise RaypolyError(
            f"RAY_ADDRESS={address} is a dashboard's, which takes jobs: put `ray job submit --working-dir . --` before "
            "this command, or give the head's port (HOST:6379)."
        )
    for wait in _PORT_WAITS:  # Ray itself would try for many minutes
        closed = why_closed(address)
        if not closed:
            break
        time.sleep(wait)
    else:
        raise _no_cluster(closed)
    with _own_sigterm():
        try:
            if "//" not in address:
                ray_internals.authenticate(address)
            ray.init(**options)
        except AuthenticationError as error:
            ray.shutdown()
            raise RaypolyError(
                f"Ray at RAY_ADDRESS={address} refuses this process: its token is missing or another. Set "
                "RAY_AUTH_MODE=token, with the head's token in ~/.ray/auth_token or RAY_AUTH_TOKEN."
            ) from error
        except (ConnectionError, RpcError, RuntimeError, ValueError) as error:
            ray.shutdown()
            raise _no_cluster(str(error).strip().partition("\n")[0].rstrip(".")) from error


def _no_cluster(reason: str) -> RaypolyError:
    return RaypolyError(
        f"No Ray cluster answers at RAY_ADDRESS={os.environ['RAY_ADDRESS']} ({reason}): "
        "start it, correct the address, or unset it for a Ray of this machine's own."
    )


def why_closed(address: str) -> str:
    """Why a connection to `host:port` fails; empty if it does not, or the address has another form."""
    found = _ADDRESS.fullmatch(address)
    try:
        if found is not None:
            socket.create_connection((found["host"], int(found["port"])), _PORT_SECONDS).close()
    except (OSError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Restore this process's SIGTERM handler, which Ray replaces when it starts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _remove_stale_folders() -> None:
    # those of drivers whose reaper was killed with them: a machine or a container that stopped at once
    for folder in Path("/tmp").glob("rp-*-*"):
        pid = folder.name.split("-")[1]
        if pid.isdigit() and not is_alive(int(pid)) and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def local_ray(hidden: Sequence[str] = (), **options: Any) -> Iterator[None]:
    """Inside, a local Ray runs, without the environment variables `hidden`. `options`: of `ray.init`."""
    if ray.is_initialized():
        raise RaypolyError("This process is connected to a Ray already: call ray.shutdown() first.")
    with _own_authentication():
        with _without_variables(hidden):
            _start({"address": "local", "num_cpus": max(2, os.cpu_count() or 1)} | options)
        try:
            yield
        finally:
            ray.shutdown()


def _start(options: dict[str, Any]) -> None:
    for last in (False, False, True):  # Ray's timeout (30 s, the dashboard's 60 s) is short for a busy machine
        try:
            with _own_sigterm():
                ray.init(**options)
            return
        except Exception as error:  # Ray raises a bare Exception if its processes start slowly
            ray.shutdown()
            if last:
                raise RaypolyError(f"Ray did not start on this machine: {error}") from error
            if "dashboard" in str(error):
                options = options | {"include_dashboard": False}


def dashboard_url() -> str | None:
    url = ray_internals.dashboard_address()
    return f"http://{url}" if url and not url.startswith("http") else url


def ray_is_up(config: Config) -> str:
    """A line with the dashboard's address, and the command that shows the token that it asks for."""
    if url := dashboard_url():
        file = os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")
        token = "echo $RAY_AUTH_TOKEN" if os.environ.get("RAY_AUTH_TOKEN") else f"cat {file}"
        asks = os.environ.get(_AUTHENTICATION) == "token"
        return f"Ray dashboard: {url}" + (f" (its token: {token})" if asks else "")
    asked = config.ray.dashboard and not joins_cluster()
    return "Ray is up" + (", without its dashboard, which did not start" if asked else "")


def scorer_options(config: ScorerConfig, reserved: float = 0.0) -> dict[str, Any]:
    """Ray's options for a scorer actor, spread over the nodes. `reserved`: CPUs of the cluster that others get."""
    if config.cpus is not None:
        cpus = config.cpus
    else:  # the engine and the learner must find room beside the scorers
        spare = joins_cluster() and ray.cluster_resources().get("CPU", 0.0) - reserved > config.workers
        cpus = 1.0 if spare else ACTOR_CPUS
    options: dict[str, Any] = {"num_cpus": cpus, "scheduling_strategy": "SPREAD"}
    if config.label is not None:
        name, _, value = config.label.partition("=")
        options["label_selector"] = {name: value}
    return options


def actor_options() -> dict[str, Any]:
    return {"num_cpus": ACTOR_CPUS}


def user_modules(config: Config) -> list[str]:
    """The user's modules that the config names, for Ray's `py_modules`."""
    names = (
        config.objective.name,
        config.loss.name,
        *asked_judges(config.judge),
        config.judge.engine,
        config.generator.engine,
        config.problems.source,
        config.reward.name,
        *(term.name for term in config.reward.terms.values() if term.name),
        *config.stages.own,
        *load_plugin(config.objective.name, objectives.KNOWN, "objective.name").stages,
    )
    roots = {name.partition(":")[0].partition(".")[0] for name in names if ":" in name} - {"raypoly"}
    found = {_origin(root) for root in roots}
    installed = sysconfig.get_paths()["purelib"]
    return sorted(str(path) for path in found if path is not None and not str(path).startswith(installed))


def _origin(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin else None


# Pids are reused: a process is its pid and its start time.
_SCRIPT = """
import os, shutil, signal, sys, time
watched, folder = {}, sys.argv[1]
def start(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
for line in sys.stdin:
    watched[int(line)] = start(int(line))
until = time.monotonic() + 3
while time.monotonic() < until and any(begun and start(pid) == begun for pid, begun in watched.items()):
    time.sleep(0.1)
for pid, begun in watched.items():
    if begun and start(pid) == begun:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
for _ in range(10):
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.exists(folder):
        break
    time.sleep(1)
"""


@contextmanager
def _reaper(folder: str) -> Iterator[Callable[[Iterable[int]], None]]:
    """A process that outlives its driver by seconds and removes what is left of its Ray, whose agents wait for minutes
    for a head that is gone. Takes the pids of that Ray."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _SCRIPT, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # it gets no signal to the driver's group
        env={},  # it gets none of the driver's keys
        text=True,
    )
    told = process.stdin
    assert told is not None

    def watch(processes: Iterable[int]) -> None:
        with suppress(BrokenPipeError):  # somebody killed the reaper: Ray's own clean-up has to do
            told.write("".join(f"{pid}\n" for pid in processes))
            told.flush()

    try:
        yield watch
    finally:
        told.close()


def descendants(pid: int) -> set[int]:
    """Pids of a process's children, and of theirs."""
    parent_of = dict(parents())
    found = {pid}
    while more := {child for child, parent in parent_of.items() if parent in found} - found:
        found |= more
    return found - {pid}


def parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                yield int(folder.name), int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has just ended
                continue
