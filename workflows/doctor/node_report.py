"""Findings about one machine: versions, GPUs, the sandbox. A Ray task makes them on each node of a cluster."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from raypoly.core import __version__
from raypoly.core.config import Config, ScorerConfig
from raypoly.core.errors import RaypolyError, SandboxError, UsageError
from raypoly.core.values import Problem, TestSuite
from raypoly.planning.gpus import ask_nvidia_smi
from raypoly.planning.placement import resolve_placement
from raypoly.run.crash import describe_error
from raypoly.verifier.sandbox import Sandbox

_INSTALL = "install raypoly with [cpu] or [cuda] (docs/quickstart.md), the same on all nodes"
_TOLD = ("raypoly", "python", "torch", "ray", "vllm")
_SAME = ("raypoly", "python", "ray")  # has to be equal on all nodes, beyond the pins
_CUDA = "import torch; torch.zeros(1, device='cuda')"
_CUDA_SECONDS = 30
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
        needed = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("cpu", "cuda"))
        if needed and (name != "vllm" or engine == "vllm"):
            pins[name] = str(requirement.specifier)
    return pins


def report_node(scorer: ScorerConfig, names: Sequence[str], cuda: bool, where: str = "") -> NodeReport:
    """Report of this process's machine. `names`: packages; `cuda`: try PyTorch on its GPUs."""
    versions = {name: _version(name) for name in names} | {"python": platform.python_version(), "raypoly": __version__}
    gpus = tuple((ask_nvidia_smi("name,driver_version") or "").splitlines())
    sandbox = attempt(name_on(where, "sandbox"), lambda: _score_once(scorer))
    return NodeReport(where, versions, gpus, _why_no_cuda() if cuda and gpus else "", sandbox)


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
