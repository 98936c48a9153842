"""Ray: the cluster this process belongs to, else one of its own."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import shutil
import signal
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from raypoly.config import Config
from raypoly.errors import RaypolyError
from raypoly.judge import key_variables
from raypoly.store.lease_owner import is_alive
from workflows.liveness.reaper import Reaper, descendants

_AUTHENTICATION = "RAY_AUTH_MODE"
ACTOR_CPUS = 0.1
"""What Ray is told an actor needs: the stages of a step take turns, so two cores hold them all."""


@contextmanager
def connect_ray(config: Config, namespace: str) -> Iterator[None]:
    """Inside, Ray is there: `RAY_ADDRESS`'s cluster (a job has it), else a local one in a temporary folder of its own.

    Actors live in a namespace named by the run. The modules of parts named `package.module:Class` travel with them.
    """
    modules = user_modules(config)
    common: dict[str, Any] = {
        "namespace": namespace,
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "runtime_env": {"py_modules": modules} if modules else {},
    }
    if os.environ.get("RAY_ADDRESS"):
        with _shut_down(_joined(common)):
            yield
        return
    _sweep()
    others = descendants(os.getpid())  # of whoever calls this: not Ray's
    # AF_UNIX paths are short: Ray's sockets lie some 60 characters below this folder.
    with (
        tempfile.TemporaryDirectory(prefix=f"rp-{os.getpid()}-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        Reaper(folder) as reaper,
        _own_authentication(),
    ):
        with _hidden(key_variables(config.judge)):
            context = start_local_ray(_temp_dir=folder, include_dashboard=config.ray.dashboard, **common)
        with _shut_down(context):
            reaper.watch(descendants(os.getpid()) - others - {reaper.pid})
            yield


@contextmanager
def _hidden(names: Sequence[str]) -> Iterator[None]:
    """Inside, this process has no such environment variables: Ray's processes inherit what it has when they start."""
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


@contextmanager
def _own_authentication() -> Iterator[None]:
    """A local Ray asks for tokens, and so would this process of every Ray that it joins later; afterwards not."""
    before = os.environ.get(_AUTHENTICATION)
    try:
        yield
    finally:
        os.environ[_AUTHENTICATION] = before or "disabled"
        ray._raylet.Config.initialize("")  # Ray keeps what the variable said, and its token
        ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
        if before is None:
            del os.environ[_AUTHENTICATION]


def _joined(options: dict[str, Any]) -> Any:
    """The cluster of `RAY_ADDRESS`. Raises `RaypolyError` where there is none."""
    with _own_sigterm():
        try:
            return ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            ray.shutdown()
            first = str(error).strip().partition("\n")[0].rstrip(".")
            raise RaypolyError(
                f"No Ray cluster answers at RAY_ADDRESS={os.environ['RAY_ADDRESS']} ({first}): "
                "start it, correct the address, or unset it for a Ray of this machine's own."
            ) from error


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray sets a handler of its own when it starts; here the one before stays."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def kill_local_ray() -> None:
    """End the processes of a local Ray at once; what belongs to a shared cluster notices this process's death."""
    node: Any = ray._private.worker._global_node
    if node is not None and ray.is_initialized():
        node.kill_all_processes(check_alive=False, allow_graceful=False)


def _sweep() -> None:
    """Remove the temporary folders that killed drivers of this user left behind."""
    for folder in Path("/tmp").glob("rp-*-*"):
        pid = folder.name.split("-")[1]
        if pid.isdigit() and not is_alive(int(pid)) and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


def start_local_ray(**options: Any) -> Any:
    """A cluster of this machine alone; on a busy machine Ray's own patience (30 s) may need more tries.

    `options` are `ray.init`'s. Raises `RaypolyError` where Ray does not come up.
    """
    if ray.is_initialized():
        raise RaypolyError("This process is connected to a Ray already: call ray.shutdown() first.")
    for last in (False, False, True):
        try:
            with _own_sigterm():
                return ray.init(**{"address": "local", "num_cpus": max(2, os.cpu_count() or 1)} | options)
        except Exception as error:  # Ray raises a bare Exception where its processes are slow to come up
            ray.shutdown()
            if last:
                raise RaypolyError(f"Ray did not start on this machine: {error}") from error
    raise AssertionError("unreachable")


@contextmanager
def _shut_down(context: Any) -> Iterator[None]:
    try:
        yield
    finally:
        ray.shutdown()


def dashboard_url() -> str | None:
    """Where this run's Ray dashboard listens, if there is one."""
    url: str | None = ray._private.worker.get_dashboard_url()
    return f"http://{url}" if url and not url.startswith("http") else url


def actor_options() -> dict[str, Any]:
    """Resources of an actor that needs no GPU."""
    return {"num_cpus": ACTOR_CPUS}


def user_modules(config: Config) -> list[str]:
    """Folders or files of the user's own modules that the config names, for Ray's `py_modules`."""
    names = (
        config.objective.name,
        config.loss.name,
        config.judge.name,
        config.generator.engine,
        config.problems.source,
        config.reward.name,
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
