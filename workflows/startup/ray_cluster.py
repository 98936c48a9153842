"""Connects to Ray: the cluster that this process belongs to, else a local one of its own."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import socket
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from raypoly.core.config import Config, ScorerConfig
from raypoly.core.errors import RaypolyError
from raypoly.run.sinks import WANDB_SECRETS
from raypoly.run.store.lease import is_alive
from raypoly.strategies.judge import key_variable_names
from workflows.liveness import ray_internals
from workflows.liveness.reaper import Reaper, descendants

_ADDRESS_FILE = "address"
"""In the folder of a Ray that a run starts for itself."""
_AUTHENTICATION = "RAY_AUTH_MODE"
_ADDRESS = re.compile(r"(?:\w+://)?(?P<host>[^:/]+):(?P<port>\d+)")
_PORT_SECONDS = 3.0
_PORT_WAITS = (0.5, 1.0, 2.0, 4.0, 0.0)
"""Seconds to wait after each look at a closed port: a head that restarts opens it again."""
ACTOR_CPUS = 0.1
"""The CPUs that Ray reserves for an actor. The stages of a step take turns, so two cores are enough for all."""


def joins_cluster() -> bool:
    """Whether a start joins the cluster of `RAY_ADDRESS`. Where that is empty or unset, it starts a Ray of its own."""
    return bool(os.environ.get("RAY_ADDRESS"))


@contextmanager
def connect_ray(config: Config, namespace: str) -> Iterator[None]:
    """Inside, Ray is connected: the cluster of `RAY_ADDRESS` (set in a job), else a local one in a temporary folder.

    Actors live in a namespace named by the run. The modules of parts named `package.module:Class` are sent to them.
    """
    ray_internals.never_start_by_itself()  # a thread of a run that has ended may still call Ray
    modules = user_modules(config)
    common: dict[str, Any] = {
        "namespace": namespace,
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "runtime_env": {"py_modules": modules} if modules else {},
    }
    if joins_cluster():
        _join_cluster(common)
        try:
            yield
        finally:
            ray.shutdown()
        return
    _remove_stale_folders()
    others = descendants(os.getpid())  # the caller's own, not Ray's
    # AF_UNIX paths are short: Ray's sockets lie some 60 characters below this folder.
    with (
        tempfile.TemporaryDirectory(prefix=f"rp-{os.getpid()}-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        Reaper(folder) as reaper,
        local_ray(
            [*key_variable_names(config.judge), *WANDB_SECRETS],
            _temp_dir=folder,
            include_dashboard=config.ray.dashboard,
            **common,
        ),
    ):
        reaper.watch(descendants(os.getpid()) - others - {reaper.pid})
        Path(folder, _ADDRESS_FILE).write_text(ray.get_runtime_context().gcs_address)
        yield


@contextmanager
def _without_variables(names: Sequence[str]) -> Iterator[None]:
    """Inside, this process does not have these environment variables, so that Ray's processes don't inherit them."""
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


@contextmanager
def _own_authentication() -> Iterator[None]:
    """Inside, a local Ray requires tokens. Afterwards this process joins other clusters without them."""
    before = os.environ.get(_AUTHENTICATION)
    try:
        yield
    finally:
        os.environ[_AUTHENTICATION] = before or "disabled"
        ray_internals.forget_authentication()
        if before is None:
            del os.environ[_AUTHENTICATION]


def _join_cluster(options: dict[str, Any]) -> None:
    """Join the cluster of `RAY_ADDRESS`. Raises `RaypolyError` if there is none."""
    address = os.environ["RAY_ADDRESS"]
    for wait in _PORT_WAITS:  # Ray itself would try for many minutes
        closed = why_closed(address)
        if not closed:
            break
        time.sleep(wait)
    else:
        raise _no_cluster(closed)
    with _own_sigterm():
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError) as error:
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
    """Keep this process's SIGTERM handler, which Ray replaces when it starts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def own_address(pid: int) -> str:
    """The address of the Ray that a driver of this machine and user runs for itself; empty if it runs none."""
    for path in Path("/tmp").glob(f"rp-{pid}-*/{_ADDRESS_FILE}"):
        if path.stat().st_uid == os.getuid():
            return path.read_text()
    return ""


def _remove_stale_folders() -> None:
    """Remove the temporary folders that killed drivers of this user left behind."""
    for folder in Path("/tmp").glob("rp-*-*"):
        pid = folder.name.split("-")[1]
        if pid.isdigit() and not is_alive(int(pid)) and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def local_ray(hidden: Sequence[str] = (), **options: Any) -> Iterator[None]:
    """Inside, a Ray of this machine alone runs, and its processes don't inherit the environment variables `hidden`.

    `options` are those of `ray.init`. Raises `RaypolyError` if Ray does not start.
    """
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
    """Start a cluster. Three tries, since Ray's timeout (30 s) is short for a busy machine. A dashboard that does not
    start in its time (60 s) is left out of the next: it should not keep a run from starting."""
    for last in (False, False, True):
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
    """The URL of this run's Ray dashboard; None if there is none."""
    url = ray_internals.dashboard_address()
    return f"http://{url}" if url and not url.startswith("http") else url


def scorer_options(config: ScorerConfig, reserved: float = 0.0) -> dict[str, Any]:
    """The resources of a scorer actor: cores of a cluster, spread over its nodes. Needs a connected Ray.

    `reserved`: CPUs of the cluster that are kept for others.
    """
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
    """The resources of an actor without a GPU."""
    return {"num_cpus": ACTOR_CPUS}


def user_modules(config: Config) -> list[str]:
    """The folders or files of the user's modules that the config names, for Ray's `py_modules`."""
    names = (
        config.objective.name,
        config.loss.name,
        config.judge.name,
        config.generator.engine,
        config.problems.source,
        config.reward.name,
        *config.stages.own,
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
