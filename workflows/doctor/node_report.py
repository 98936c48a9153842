"""What one machine has: versions, GPUs, and walls for programs. Made here, and by a Ray task on each other node."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from raypoly.core.config import Config, ScorerConfig
from raypoly.core.errors import SandboxError, UsageError
from raypoly.core.values import Problem, TestSuite
from raypoly.core.version import __version__
from raypoly.planning.gpus import ask_nvidia_smi
from raypoly.planning.placement import resolve_placement
from raypoly.verifier.sandbox import Sandbox
from workflows.doctor.machine_findings import MachineFinding, attempt

_INSTALL = "install raypoly with [cpu] or [cuda] (docs/quickstart.md), the same on all nodes"
_TOLD = ("raypoly", "python", "torch", "ray", "vllm")
_SAME = ("raypoly", "python", "ray")
"""What has to be equal on all nodes, beyond the pins."""
_CUDA = "import torch; torch.zeros(1, device='cuda')"
_CUDA_SECONDS = 30
ADD_ONE = Problem("doctor", "Add one to n.", "f", TestSuite("calls", json.dumps([{"args": [2], "expected": 3}])))
PROGRAM = "def f(n):\n    return n + 1\n"


@dataclass(frozen=True)
class NodeReport:
    """What was found on one machine."""

    where: str
    """The node's address; empty for this machine."""
    versions: Mapping[str, str | None]
    """By package, `python` and `raypoly` among them; None where it is not installed."""
    gpus: tuple[str, ...]
    """Name and driver of each."""
    cuda: str
    """Why PyTorch can't use them; empty if it can, or was not asked."""
    sandbox: MachineFinding


def name_on(where: str, what: str) -> str:
    """The name of a finding on the node of that address, or on this machine."""
    return f"{what} on {where}" if where else what


def read_pins(engine: str) -> dict[str, str]:
    """The versions that raypoly's installed metadata asks for, by package, `python` among them.

    vLLM's builds for GPUs and for CPUs count as one package, which only its `engine` needs. Raises `UsageError`.
    """
    try:
        own = importlib.metadata.distribution("raypoly")
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(f"raypoly is not installed here, and its pins stand in its metadata: {_INSTALL}.") from error
    pins = {"python": own.metadata["Requires-Python"]}
    for requirement in map(Requirement, own.requires or ()):
        marker, name = requirement.marker, requirement.name.removesuffix("-cpu")
        needed = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("cpu", "cuda"))
        if needed and (name != "vllm" or engine == "vllm"):
            pins[name] = str(requirement.specifier)
    return pins


def report_node(scorer: ScorerConfig, names: Sequence[str], cuda: bool, where: str = "") -> NodeReport:
    """The report of the machine that this process is on. `names`: its packages; `cuda`: try PyTorch on its GPUs."""
    versions = {name: _version(name) for name in names} | {"python": platform.python_version(), "raypoly": __version__}
    gpus = tuple((ask_nvidia_smi("name,driver_version") or "").splitlines())
    sandbox = attempt(name_on(where, "sandbox"), lambda: _score_once(scorer))
    return NodeReport(where, versions, gpus, _why_no_cuda() if cuda and gpus else "", sandbox)


def version_finding(report: NodeReport, here: NodeReport, pins: Mapping[str, str]) -> MachineFinding:
    """Whether the versions of a machine are those of the pins, and those of this machine where that matters."""
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
    """Whether the config's placement fits the GPUs of all machines, and a line for each machine whose GPUs it needs."""
    gpus, ranks = sum(len(report.gpus) for report in reports), config.train.ranks
    wanted = attempt("gpu", lambda: f"{gpus}, placement {resolve_placement(config.generator, gpus, ranks).kind}")
    if not wanted.ok or not resolve_placement(config.generator, gpus, ranks).on_gpu:
        return [wanted]
    findings = [wanted]
    for report in (report for report in reports if report.gpus):
        broken = f": PyTorch can't use it ({report.cuda}): install raypoly[cuda], or a newer driver"
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
    """The active layers. Raises `SandboxError` if a program can't be confined, or a right one does not pass."""
    with Sandbox(scorer, evidence=False) as sandbox:
        verdict = sandbox.score(ADD_ONE, PROGRAM)
        if not verdict.passed:
            raise SandboxError(f"A right program was called {verdict.status} ({verdict.detail}): see docs/verifier.md.")
        return sandbox.protection


def _why_no_cuda() -> str:
    """Why PyTorch can't use a GPU; empty if it can. A process of its own: Ray hides GPUs from a task without one."""
    environment = {name: value for name, value in os.environ.items() if (name, value) != ("CUDA_VISIBLE_DEVICES", "")}
    command = [sys.executable, "-c", _CUDA]
    try:
        subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_CUDA_SECONDS, check=True)
    except subprocess.CalledProcessError as error:
        return str((error.stderr.strip() or f"exit code {error.returncode}").splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"no answer in {_CUDA_SECONDS} s"
    return ""
