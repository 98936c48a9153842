"""The Ray cluster of `RAY_ADDRESS`: is it reached, and what has each of its nodes?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError
from raypoly.run.crash import describe_error
from workflows.doctor.node_report import MachineFinding, NodeReport, attempt, attempt_all, report_node
from workflows.liveness import ray_internals
from workflows.startup.ray_cluster import connect_ray, why_closed

_SECONDS = 240.0
_NODE_SECONDS = 120.0  # for the reports of all nodes
_PORTS = {"NodeManagerPort": "raylet", "ObjectManagerPort": "objects", "MetricsExportPort": "metrics"}


def examine_cluster(config: Config, names: Sequence[str], cuda: bool) -> tuple[list[MachineFinding], list[NodeReport]]:
    """Findings on the cluster, and the reports of its other nodes."""
    findings: list[MachineFinding] = []
    reports: list[NodeReport] = []

    def join() -> str:
        address = os.environ["RAY_ADDRESS"]
        if closed := why_closed(address):  # Ray itself would try for many minutes
            raise RaypolyError(
                f"Nothing answers at RAY_ADDRESS={address} ({closed}): start the cluster, correct the address, open "
                "the port, or unset it for a Ray of this machine's own."
            )
        try:
            with connect_ray(config, "raypoly-doctor"):
                nodes = [node for node in ray.nodes() if node["Alive"]]
                findings.extend(_port_findings(nodes))
                for found in _ask_nodes(config, nodes, names, cuda):
                    if isinstance(found, NodeReport):
                        reports.append(found)
                    else:
                        findings.append(found)
        except RaypolyError as error:
            raise RaypolyError(
                f"{error} Its port is open: compare token, Ray and Python with the cluster's."
            ) from error
        return f"{address}, Ray {ray.__version__}, nodes: {len(nodes)}, joined {_token_mode()}"

    return [*attempt_all({"cluster": join}, _SECONDS), *findings], reports


def _ask_nodes(
    config: Config, nodes: Sequence[Mapping[str, Any]], names: Sequence[str], cuda: bool
) -> Iterator[NodeReport | MachineFinding]:
    here, asked, until = ray.get_runtime_context().get_node_id(), {}, time.monotonic() + _NODE_SECONDS
    for node in nodes:
        if node["NodeID"] != here:
            where = node["NodeManagerAddress"]
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = ray.remote(report_node).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
            asked[task.remote(config.scorer, names, cuda, where)] = where
    for pending, where in asked.items():
        try:
            yield ray.get(pending, timeout=max(1.0, until - time.monotonic()))
        except RayError as error:
            reason = " ".join(describe_error(error).split())[:300]
            advice = "see `ray status`, and install this raypoly there"
            yield MachineFinding(f"node {where}", False, f"it gave no report ({reason}): {advice}")


def _port_findings(nodes: Sequence[Mapping[str, Any]]) -> list[MachineFinding]:
    """Whether this machine reaches each node's ports, and the dashboard if there is one."""
    ports: dict[str, dict[str, str]] = {}
    for node in nodes:
        host = node["NodeManagerAddress"]
        listening = {f"{host}:{node[key]}": name for key, name in _PORTS.items() if node.get(key, 0) > 0}
        ports.setdefault(f"ports of {host}", {}).update(listening)
    if dashboard := ray_internals.dashboard_address():
        ports["dashboard"] = {dashboard.rpartition("//")[2]: "dashboard"}

    def reach(places: Mapping[str, str]) -> str:
        if closed := [f"{place} ({name}: {why})" for place, name in places.items() if (why := why_closed(place))]:
            raise RaypolyError(f"{', '.join(closed)} can't be reached from here: open it in the firewall.")
        return ", ".join(f"{place.rpartition(':')[2]} ({name})" for place, name in places.items())

    return [attempt(what, lambda places=places: reach(places)) for what, places in ports.items()]  # type: ignore[misc]


def _token_mode() -> str:
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return "by a token (RAY_AUTH_MODE=token)"
    return "without a token: whoever reaches its ports can run programs there (RAY_AUTH_MODE=token asks for one)"
