"""Findings about one machine (versions, GPUs, the sandbox) and about each node of the cluster of `RAY_ADDRESS`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from raypoly.core import __version__
from raypoly.core.config import Config, ScorerConfig
from raypoly.core.errors import RaypolyError, SandboxError, UsageError
from raypoly.core.values import Problem, TestSuite
from raypoly.planning.devices import ask_nvidia_smi
from raypoly.planning.placement import resolve_placement
from raypoly.run.crash import describe_error
from raypoly.verifier.sandbox import Sandbox

_INSTALL = "install raypoly with [train,cpu] or [train,cuda] (docs/runs.md), the same on all nodes"
_TOLD = ("raypoly", "python", "torch", "ray", "vllm")
_SAME = ("raypoly", "python", "ray")  # has to be equal on all nodes, beyond the pins
_CUDA = "import torch; torch.zeros(1, device='cuda')"
_CUDA_SECONDS = 30
_JOIN_SECONDS = 240.0
_NODE_SECONDS = 120.0  # for the reports of all nodes
_PORTS = {"NodeManagerPort": "raylet", "ObjectManagerPort": "objects", "MetricsExportPort": "metrics"}
ADD_ONE = Problem("doctor", "Add one to n.", "f", TestSuite("calls", json.dumps([{"args": [2], "expected": 3}])))
PROGRAM = "def f(n):\n    return n + 1\n"


@dataclass(frozen=True)
class MachineFinding:
    """One line of the report."""

    what: str
    ok: bool
    detail: str
    """What there is; or what is wrong, and what to do."""


def attempt(what: str, work: Callable[[], str]) -> MachineFinding:
    """Call `work`, which returns what there is and raises what is wrong."""
    try:
        ok, detail = True, work()
    except RaypolyError as error:
        ok, detail = False, str(error)
    except Exception as error:  # noqa: BLE001 - a user's part or a broken package may raise anything: that is a finding
        ok, detail = False, f"it failed: {describe_error(error)}"
    return MachineFinding(what, ok, " ".join(detail.split()))


def attempt_all(works: Mapping[str, Callable[[], str]], seconds: float) -> list[MachineFinding]:
    """`attempt` each, side by side. One that hangs is a finding."""
    # Threads and no pool: a thread that hangs can't be ended, and a pool would wait for it at exit.
    found: dict[str, MachineFinding] = {}

    def run(what: str) -> None:
        found[what] = attempt(what, works[what])

    threads = [threading.Thread(target=run, args=(what,), name=what, daemon=True) for what in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    late = f"no answer in {seconds:.0f} s: see whether its server, disk or network hangs"
    return [found.get(what) or MachineFinding(what, False, late) for what in works]


@dataclass(frozen=True)
class NodeReport:
    """What was found on one machine."""

    where: str
    """The node's address; empty for this machine."""
    versions: Mapping[str, str | None]
    """By package, and `python`; None where it is not installed."""
    gpus: tuple[str, ...]
    """Name and driver of each."""
    cuda: str
    """Why PyTorch can't use them, or empty."""
    sandbox: MachineFinding
    sees_run: bool = True
    """Whether it sees the file that the doctor wrote where the run's folder will be, if it wrote one."""


def name_on(where: str, what: str) -> str:
    return f"{what} on {where}" if where else what


def read_pins(engine: str) -> dict[str, str]:
    """Versions that raypoly's installed metadata asks for, by package, and `python`. Raises `UsageError`.

    vLLM's builds for GPUs and for CPUs count as one package, which only its `engine` needs.
    """
    try:
        own = importlib.metadata.distribution("raypoly")
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(f"raypoly is not installed here, and its pins stand in its metadata: {_INSTALL}.") from error
    pins = {"python": own.metadata["Requires-Python"]}
    for requirement in map(Requirement, own.requires or ()):
        marker, name = requirement.marker, requirement.name.removesuffix("-cpu")
        needed = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("train", "cpu", "cuda"))
        if needed and (name != "vllm" or engine == "vllm"):
            pins[name] = str(requirement.specifier)
    return pins


def report_node(
    scorer: ScorerConfig, names: Sequence[str], cuda: bool, where: str = "", witness: Path | None = None
) -> NodeReport:
    """Report of this process's machine. `names`: packages; `cuda`: try PyTorch on its GPUs; `witness`: a file that it
    must see to keep the run."""
    versions = {name: _version(name) for name in names} | {"python": platform.python_version(), "raypoly": __version__}
    gpus = tuple((ask_nvidia_smi("name,driver_version") or "").splitlines())
    sandbox = attempt(name_on(where, "sandbox"), lambda: _score_once(scorer))
    cuda_missing = _why_no_cuda() if cuda and gpus else ""
    return NodeReport(where, versions, gpus, cuda_missing, sandbox, witness is None or os.path.exists(witness))


def version_finding(report: NodeReport, here: NodeReport, pins: Mapping[str, str]) -> MachineFinding:
    """Compare a machine's versions with the pins, and with this machine's where that matters."""
    found, ours = report.versions, here.versions
    wrong = [
        f"{name} {found[name]} is not {pin}" if found[name] else f"{name} is not installed"
        for name, pin in pins.items()
        if not SpecifierSet(pin).contains(found[name] or "0", prereleases=True)
    ]
    wrong += [f"{name} is {found[name]} and here {ours[name]}" for name in _SAME if found[name] != ours[name]]
    told = ", ".join(f"{name} {found[name]}" for name in _TOLD if name in found)
    return MachineFinding(
        name_on(report.where, "versions"), not wrong, f"{', '.join(wrong)}: {_INSTALL}" if wrong else told
    )


def gpu_findings(config: Config, reports: Sequence[NodeReport]) -> list[MachineFinding]:
    """Whether the placement fits the GPUs of all machines, and a line for each machine whose GPUs it needs."""
    gpus, ranks = sum(len(report.gpus) for report in reports), config.train.ranks
    wanted = attempt("gpu", lambda: f"{gpus}, placement {resolve_placement(config.generator, gpus, ranks).kind}")
    if not wanted.ok or not resolve_placement(config.generator, gpus, ranks).on_gpu:
        return [wanted]
    findings = [wanted]
    for report in (report for report in reports if report.gpus):
        broken = f": PyTorch can't use it ({report.cuda}): install raypoly[train,cuda], or a newer driver"
        detail = "; ".join(report.gpus) + (broken if report.cuda else "")
        findings.append(MachineFinding(name_on(report.where, "driver"), not report.cuda, detail))
    return findings


def _version(name: str) -> str | None:
    for package in (name, f"{name}-cpu") if name == "vllm" else (name,):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _score_once(scorer: ScorerConfig) -> str:
    """The active layers. Raises `SandboxError`."""
    with Sandbox(scorer) as sandbox:
        verdict = sandbox.score(ADD_ONE, PROGRAM)
        if not verdict.passed:
            raise SandboxError(f"A right program was called {verdict.status} ({verdict.detail}): see docs/verifier.md.")
        return sandbox.protection


def _why_no_cuda() -> str:
    # In a process of its own, since Ray hides GPUs from a task without one.
    environment = {name: value for name, value in os.environ.items() if (name, value) != ("CUDA_VISIBLE_DEVICES", "")}
    command = [sys.executable, "-c", _CUDA]
    try:
        subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_CUDA_SECONDS, check=True)
    except subprocess.CalledProcessError as error:
        return str((error.stderr.strip() or f"exit code {error.returncode}").splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"no answer in {_CUDA_SECONDS} s"
    return ""


def run_folder_findings(
    config: Config, folder: Path, here: NodeReport, others: Sequence[NodeReport]
) -> list[MachineFinding]:
    """Whether the other nodes on which the learner may start see the run's folder."""
    on_gpu = config.generator.placement != "cpu" and any(report.gpus for report in (here, *others))
    blind = f"the learner may start there, and does not see {folder}: give a run.dir that all machines share (NFS, S3)"
    return [
        MachineFinding(f"run.dir on {each.where}", each.sees_run, f"{folder} is the same" if each.sees_run else blind)
        for each in others
        if each.gpus or not on_gpu
    ]


def examine_cluster(
    config: Config, names: Sequence[str], cuda: bool, witness: Path | None = None
) -> tuple[list[MachineFinding], list[NodeReport]]:
    """Findings on the cluster, and the reports of its other nodes. `witness`: a file that they may see."""
    import ray  # takes a second

    from workflows.startup.ray_cluster import connect_ray, why_closed

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
                nodes, mode = [node for node in ray.nodes() if node["Alive"]], _token_mode()
                findings.extend(_port_findings(nodes))
                for found in _ask_nodes(config, nodes, names, cuda, witness):
                    if isinstance(found, NodeReport):
                        reports.append(found)
                    else:
                        findings.append(found)
        except RaypolyError as error:
            raise RaypolyError(
                f"{error} Its port is open: compare token, Ray and Python with the cluster's."
            ) from error
        return f"{address}, Ray {ray.__version__}, nodes: {len(nodes)}, joined {mode}"

    return [*attempt_all({"cluster": join}, _JOIN_SECONDS), *findings], reports


def _ask_nodes(
    config: Config, nodes: Sequence[Mapping[str, Any]], names: Sequence[str], cuda: bool, witness: Path | None
) -> Iterator[NodeReport | MachineFinding]:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here, asked, until = ray.get_runtime_context().get_node_id(), {}, time.monotonic() + _NODE_SECONDS
    for node in nodes:
        if node["NodeID"] != here:
            where = node["NodeManagerAddress"]
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = ray.remote(report_node).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
            asked[task.remote(config.scorer, names, cuda, where, witness)] = where
    for pending, where in asked.items():
        try:
            yield ray.get(pending, timeout=max(1.0, until - time.monotonic()))
        except RayError as error:
            reason = " ".join(describe_error(error).split())[:300]
            advice = "see `ray status`, open its ports in the firewall, and install this raypoly there"
            yield MachineFinding(f"node {where}", False, f"it gave no report ({reason}): {advice}")


def _port_findings(nodes: Sequence[Mapping[str, Any]]) -> list[MachineFinding]:
    """Whether this machine reaches each node's ports, and the dashboard if there is one."""
    from actors import ray_internals
    from workflows.startup.ray_cluster import why_closed

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
