"""Ray's private names, all that raypoly uses. A change of Ray's version fails in this file's test first."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.exceptions import AuthenticationError
from ray.experimental.internal_kv import _internal_kv_get

_JOB_SECONDS = 5  # for each request to the storage of jobs


def actor_id(actor: Any) -> str:
    found: str = actor._actor_id.hex()
    return found


def raylet_socket() -> str | None:
    """None if this driver has none on this machine."""
    node: Any = ray._private.worker.global_worker.node
    return None if node is None else str(node.raylet_socket_name)


def log_folder() -> Path | None:
    """None if this driver has no node here."""
    node: Any = ray._private.worker.global_worker.node
    return None if node is None else Path(node.get_logs_dir_path())


def kill_own_node() -> None:
    """Kill a local Ray's processes. A shared cluster notices this process's death by itself."""
    node: Any = ray._private.worker._global_node
    if node is not None and ray.is_initialized():
        node.kill_all_processes(check_alive=False, allow_graceful=False)


def forget_authentication() -> None:
    """Make Ray read `RAY_AUTH_MODE` and its token again. It keeps both from its first start in a process."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def authenticate(address: str) -> None:
    """Raise `AuthenticationError` where the cluster at `address` refuses this process, which takes the token of this
    machine if `RAY_AUTH_MODE` is not set. Ray itself would try for 20 s, and not name the token."""
    place = ray._private.services.canonicalize_bootstrap_address(address)
    if place is None:  # there is none: Ray says so
        return
    loader = ray._raylet.AuthenticationTokenLoader.instance()
    found = loader.has_token(ignore_auth_mode=True)
    loader.reset_cache()  # a process that has read a token asks for it itself: a cluster without could not call it
    mode = os.environ.get("RAY_AUTH_MODE")
    if mode == "token" and not found:  # with which Ray's client would abort the process
        raise AuthenticationError("no token was found")
    try:
        ray._raylet.GcsClient(address=place)
    except AuthenticationError:
        if mode is not None or not found:
            raise
        os.environ["RAY_AUTH_MODE"] = "token"
        ray._raylet.Config.initialize("")
        ray._raylet.GcsClient(address=place)


def never_start_by_itself() -> None:
    """Make a call to Ray without a connection raise `RaySystemError`. Ray would start another cluster, or join one."""
    ray._private.auto_init_hook.enable_auto_connect = False


def dashboard_address() -> str | None:
    """With or without `http://`."""
    found: str | None = ray._private.worker.get_dashboard_url()
    return found


_print = ray._private.worker.print_to_stdstream


def take_messages(take: Callable[[str], None] | None) -> None:
    """Give Ray's messages to `take`, not to standard output; None ends that. A driver that was connected with
    `log_to_driver=False` gets nothing else there."""

    def told(data: Mapping[str, Any], ignore_prefix: bool) -> None:
        assert take is not None
        take("\n".join(data["lines"]))

    ray._private.worker.print_to_stdstream = _print if take is None else told


def free_cpus(label: str | None) -> list[float] | None:
    """Of each node, or of those with the label, `NAME=VALUE`; None where no actor waits for a place."""
    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    if not status.resource_demands.ray_task_actor_demand:  # on a full cluster too those that start have theirs
        return None
    nodes = [*status.active_nodes, *status.idle_nodes]
    if label is not None:
        name, _, value = label.partition("=")
        nodes = [node for node in nodes if (node.labels or {}).get(name) == value]
    return [node.available_resources().get("CPU", 0.0) for node in nodes]


def autoscales() -> bool:
    """Whether the connected cluster has an autoscaler."""
    # an autoscaler names the types of its nodes; without one Ray makes up a type for each node
    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    types = {node.ray_node_type_name for node in (*status.active_nodes, *status.idle_nodes)}  # of autoscaler v2
    told = _internal_kv_get(ray._private.ray_constants.DEBUG_AUTOSCALING_STATUS)  # of the autoscaler before it
    report = json.loads(told).get("autoscaler_report") if told else None  # none before its first look
    named: set[str] = set(report["active_nodes"]) if report else set()
    made_up = {f"node_{node['NodeID']}" for node in ray.nodes()}
    return not types <= made_up or (bool(named) and not named & made_up)


def job_runtime_env() -> Mapping[str, Any] | None:
    """None outside a Ray job."""
    job = _job_config()
    found: Mapping[str, Any] = (job or {}).get("runtime_env") or {}
    return None if job is None else found


def submission_id() -> str | None:
    """None outside a Ray job."""
    found: str | None = ((_job_config() or {}).get("metadata") or {}).get("job_submission_id")
    return found


async def tell_job(job: str, metadata: Mapping[str, str], message: str) -> None:
    """Show these on the dashboard's page of a submitted job, before its own metadata, as long as it runs."""
    # late: an error here is the caller's warning
    from ray.dashboard.modules.job.common import JobInfoStorageClient, JobStatus

    storage = JobInfoStorageClient(ray._private.worker.global_worker.gcs_client)
    info = await storage.get_info(job, timeout=_JOB_SECONDS)
    if info is not None and info.status == JobStatus.RUNNING:  # Ray writes another status after this process's end
        before = info.metadata or {}
        kept = {key: value for key, value in before.items() if key not in metadata}
        told = {**metadata, **kept}  # the page has room for the first
        if (name := before.get("job_name")) not in (None, job):  # of whoever submitted it
            told["job_name"] = name
        await storage.put_info(job, replace(info, metadata=told, message=message), timeout=_JOB_SECONDS)


def _job_config() -> Mapping[str, Any] | None:
    told = os.environ.get(ray._private.runtime_env.constants.RAY_JOB_CONFIG_JSON_ENV_VAR)
    found: Mapping[str, Any] | None = None if told is None else json.loads(told)
    return found
