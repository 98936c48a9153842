"""Parent's side of the forkers: start the zygote, get children from it and its templates, reap them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from raypoly.core.config import ScorerConfig
from raypoly.core.errors import BrokenTests, MissingHere, SandboxError, UsageError
from raypoly.core.values import Evidence, Problem
from raypoly.verifier.sandbox.channel import Child, ChildGone, Clock, Garbled, OutOfTime
from raypoly.verifier.sandbox.child import plain_data
from raypoly.verifier.sandbox.child.confine import SCRATCH_BYTES
from raypoly.verifier.sandbox.interpreter_facts import interpreter_facts
from raypoly.verifier.sandbox.outcome import TestStopped
from raypoly.verifier.sandbox.prepared_suite import Cases

_SCRIPT = Path(__file__).parent / "child" / "zygote.py"
_FACTS = Path(__file__).parent / "interpreter_facts.py"
FOLDER = "raypoly-sandbox-"
# age from which a killed owner's folder is removed
_SWEPT_SECONDS = 60.0
PACKAGES = ("numpy", "sortedcontainers")
_START_SECONDS = 60.0
_PRELUDE_SECONDS = 20.0
_SIGNALS = {number.value: number.name for number in signal.Signals}
FIRST_USER, USERS = 1_500_000_000, 100_000_000
"""Uids that no machine assigns. Each sandbox has its own, so that limits by user are its own too."""


class EvidenceReader(Protocol):
    """Interface of what reads a scored program's evidence. A sandbox works without; no wall depends on it.

    It asks confined children about a program that parses. One runs it: that of its tests, if they have budgets and it
    can't tell that it ran before (`budget.leaves_nothing`). One reads its source.

    `raypoly.strategies.evidence.StrategyEvidence` is the one of a run.
    """

    @property
    def packages(self) -> Sequence[str]:
        """Packages of raypoly that the children's module may import from: standard library alone."""
        ...

    @property
    def child_module(self) -> str:
        """Module that answers in a child.

        It has `read_source(*question)`, `observe(channel, namespace, nonce, *question)`, which works behind `guard.py`,
        `observe_scored(report, namespace, *question)`, which runs in a program's process after its tests, and `warm()`,
        called once before children are forked.
        """
        ...

    def run_question(self, problem: Problem, code: str, suite: Cases | None, passed: bool) -> tuple[Any, ...] | None:
        """Arguments of `observe`; None if the program is not to be run."""
        ...

    def source_question(self, problem: Problem, code: str, run: Any) -> tuple[Any, ...]:
        """Arguments of `read_source`. `run`: the answer of the child that ran the program, or None."""
        ...

    def read(self, source: Any, run: Any, ran: bool) -> Evidence:
        """The children's answers, which may be anything, as `Evidence`. `ran`: the program was to be run."""
        ...


@dataclass(frozen=True)
class ChildExit:
    status: int
    """Wait status."""
    cpu_seconds: float
    large: bool
    """Whether it ever held half of its memory limit."""


def stop_of_exit(ended: ChildExit, clock: Clock) -> TestStopped:
    """Why a process ended that we did not kill. Raises `SandboxError` if the program did not cause it."""
    if not os.WIFSIGNALED(ended.status):
        code = os.waitstatus_to_exitcode(ended.status)
        return TestStopped("error", f"ended with exit code {code} before it answered")
    number = os.WTERMSIG(ended.status)
    if number in (signal.SIGXCPU, signal.SIGKILL) and ended.cpu_seconds >= clock.in_all:
        return TestStopped("timeout", f"more than {clock.in_all:g} s of CPU in all", by_clock=True)
    if number == signal.SIGKILL and not ended.large:  # a candidate can't send itself SIGKILL
        raise SandboxError("A program was killed from outside: the machine may be out of memory.")
    if number == signal.SIGKILL:
        return TestStopped("memory", "killed by the kernel, most likely for memory")
    return TestStopped("error", f"died of {_SIGNALS.get(number, f'signal {number}')}")


class Forker:
    """A process that forks confined children. A request after its death raises `SandboxError`."""

    def __init__(self, control: socket.socket, memory: int) -> None:
        self._control = control
        self._control.settimeout(_START_SECONDS)
        self._memory = memory
        # the children's scratch, where it is a plain folder without a size limit
        self._scratch: Path | None = None
        self._buffer = b""
        self._forks = 0

    def fork(self, cpu_seconds: float, clock: Clock, kind: str = "child") -> Child:
        """A new confined child for `cpu_seconds` in all. Raises `SandboxError` if the forker is gone."""
        ours, theirs = socket.socketpair()
        # the kernel adds the sender's process id to the greeting, so that no child can name another's
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._forks += 1
        # The kernel counts by ticks, on each core, and sleeps may hide between them: its limit, which kills as somebody
        # from outside does, is out of reach for a program that we stop in time.
        limit = (int(cpu_seconds) + 2) * (os.cpu_count() or 1)
        request = f"{kind} {self._forks} {self._memory} {limit}\n"
        try:
            socket.send_fds(self._control, [request.encode()], [theirs.fileno()])
        except OSError as error:
            ours.close()
            raise SandboxError(f"The sandbox's zygote is gone: {error}") from error
        finally:
            theirs.close()
        return Child(ours, self._forks, clock, self._scratch)

    def reap(self, child: Child) -> ChildExit:
        """Kill the child; how it ended. Raises `SandboxError` if the forker is gone, or the scratch's disk is full."""
        child.kill()
        try:
            self._control.sendall(b"reap %d\n" % child.number)
            number, *words = self._line().split()
        except OSError as error:
            raise SandboxError(f"The sandbox's zygote is gone: {error}") from error
        if int(number) != child.number or len(words) != 3:
            raise SandboxError("The sandbox could not start a process: the machine has no more to give.")
        if self._scratch is not None:  # what the child had written is gone: others have filled it
            disk = os.statvfs(self._scratch)
            if disk.f_bavail * disk.f_frsize < SCRATCH_BYTES:
                raise SandboxError(f"The disk of {self._scratch} is full: free some of it, or set TMPDIR to another.")
        # KiB held times two, in bytes: half of the limit
        return ChildExit(int(words[0]), float(words[1]), int(words[2]) << 11 >= self._memory)

    def close(self) -> None:
        """Close the control socket, which ends the forker and its children."""
        self._control.close()

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            part = self._control.recv(1 << 16)
            if not part:
                raise SandboxError("The sandbox's zygote is gone: its control socket was closed.")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


class PreludeTemplate(Forker):
    """A child of the zygote in which a prelude has run; programs are forked from it."""

    def __init__(self, zygote: Zygote, prelude: str, memory: int) -> None:
        clock = Clock(_PRELUDE_SECONDS, _PRELUDE_SECONDS)
        child = zygote.fork(_PRELUDE_SECONDS, clock, "template")
        try:
            child.send(plain_data.pack(prelude))
            problem = plain_data.decode(child.receive())
        except (ChildGone, OutOfTime, Garbled, plain_data.Malformed) as error:
            gone = isinstance(error, ChildGone) and child.ends_by_itself()
            ended = zygote.reap(child)
            if gone:
                stop_of_exit(ended, clock)
            raise BrokenTests(f"it did not run to its end ({type(error).__name__})") from error
        except BaseException:
            zygote.reap(child)
            raise
        if problem:
            zygote.reap(child)
            raise BrokenTests(str(problem))
        super().__init__(child.channel, memory)
        self._scratch = zygote._scratch
        self._zygote, self._child = zygote, child

    def close(self) -> None:
        """End the template. Raises `SandboxError` if the zygote is gone."""
        self._zygote.reap(self._child)


class Zygote(Forker):
    """One warm process that forks confined children, and templates."""

    def __init__(
        self, limits: ScorerConfig, evidence: EvidenceReader | None = None, packages: tuple[str, ...] = PACKAGES
    ) -> None:
        self._limits, self._evidence = limits, evidence
        self._folder, self._lock = "", -1
        self._interpreter, self._packages = find_interpreter(limits.python, packages)
        ours, theirs = socket.socketpair()
        super().__init__(ours, limits.memory_mib << 20)
        try:
            _sweep(Path(tempfile.gettempdir()))
            self._folder = tempfile.mkdtemp(prefix=FOLDER)
            self._lock = os.open(self._folder, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._process = self._launch(theirs)
            theirs.close()
            greeting: dict[str, Any] = json.loads(self._line())
        except (SandboxError, OSError) as error:
            self.close()
            raise SandboxError(f"The sandbox's zygote did not start: {error} See its message above.") from error
        self.layers: list[str] = greeting["layers"]
        self.missing: dict[str, str] = greeting["missing"]
        if "namespaces" in self.layers:  # it has a file tree of its own: nothing is left here if we are killed
            shutil.rmtree(self._folder, ignore_errors=True)
        else:
            self._scratch = Path(self._folder, "scratch")

    def template(self, prelude: str) -> PreludeTemplate:
        """The template for programs with this `prelude`. Raises `BrokenTests` if it can't be run."""
        return PreludeTemplate(self, prelude, self._memory)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End the zygote and every child, and remove the scratch."""
        super().close()
        process = getattr(self, "_process", None)
        if process is not None:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _launch(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        evidence = self._evidence
        root, scratch = Path(self._folder, "root"), Path(self._folder, "scratch")
        root.mkdir()
        scratch.mkdir()
        Path(self._folder).chmod(0o711)
        settings = {
            "isolation": self._limits.isolation,
            "folder": str(root),
            "scratch": str(scratch),
            "packages": self._packages,
            "evidence": {"packages": list(evidence.packages), "module": evidence.child_module} if evidence else None,
            "user": FIRST_USER + int.from_bytes(os.urandom(4), "big") % USERS,
        }
        environment = {
            "PYTHONHASHSEED": "0",  # the same order of sets, and so the same answers, each time
            "MALLOC_ARENA_MAX": "1",  # arenas of threads reserve address space, which counts as memory
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONUTF8": "1",
        }
        control = theirs.fileno()
        return subprocess.Popen(
            [self._interpreter, "-S", "-s", "-P", "-c", _BOOT, str(control), str(_SCRIPT), json.dumps(settings)],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(control,),
            start_new_session=True,
        )


# moves the control socket to descriptor 3 and starts the script
_BOOT = (
    "import os,sys,runpy;n=int(sys.argv[1]);n!=3 and (os.dup2(n,3),os.close(n));"
    "sys.argv=sys.argv[2:];runpy.run_path(sys.argv[0],run_name='__main__')"
)


def _sweep(parent: Path) -> None:
    # a living owner has locked its folder
    for folder in parent.glob(f"{FOLDER}*"):
        with contextlib.suppress(OSError):  # another user's, in use, or already gone
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if time.time() - os.fstat(lock).st_mtime > _SWEPT_SECONDS:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            finally:
                os.close(lock)


@cache
def find_interpreter(python: str | None, packages: tuple[str, ...] = PACKAGES) -> tuple[str, list[str]]:
    """The path of `scorer.python`, by default of this process's own, and the folders of those packages that it has.

    Raises `MissingHere` where it does not start, `UsageError` where it is too old.
    """
    if python is None:
        return interpreter_facts(packages)[1:]
    try:
        asked = subprocess.run([python, str(_FACTS), *packages], capture_output=True, text=True, check=False, cwd="/")
        if asked.returncode:
            raise ValueError(asked.stderr.strip().rpartition("\n")[2] or f"it ended with {asked.returncode}")
        version, path, folders = json.loads(asked.stdout)
    except (OSError, ValueError) as error:
        raise MissingHere(f"scorer.python={python} is no Python that starts: {error}.") from error
    if tuple(version) < (3, 11):
        told = ".".join(map(str, version))
        raise UsageError(f"scorer.python={python} is Python {told}, and programs need 3.11 or later.")
    return path, folders
