"""Hosts of this machine that share no files but those asked for, one Ray over them, and what goes wrong with hosts.

    with RealHosts(3) as hosts:
        hosts.run(["python", "-c", "..."])          # on the head, which has no room for actors
        hosts.hit("cut", seconds=20, actor="scorer")

A host is a network, mount, PID, UTS and IPC namespace: its own address, name, processes, `/tmp`, `/dev/shm` and home.
The code is at `/tmp/code`. Its first process ends with the process that made it, and takes all others with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raypoly.core.caches import cache_root
from tests.support.driver_process import ROOT, Driver
from tests.support.faulty_server import Server
from tests.support.ray_machines import TITLES, Host, Impossible, Network, ip, process_title
from tests.support.slow_link import slow_cable
from workflows.startup.ray_cluster import parents

BEFORE = {"full-disk": "ours", "no-code": "none", "other-code": "other"}
"""Faults that a host has before the run starts, and its code."""
SILENT = "silent-judge"
LASTING = ("cut", "half-open", "slow")
FAULTS = (*LASTING, "kill-raylet", "lose-head", *BEFORE)
DELAY, LOSS = 0.2, 0.02  # of a slow host's frames, each way: seconds, and the share that is lost
_ENV = ("env", "-C", "/tmp/code", "-u", "PYTHONPATH", "-u", "RAY_ADDRESS")
_TRIES, _START_SECONDS, _PORT = 4, 180.0, 6379
_SET_UP = """
set -e
hostname "$1"; code=$2; shift 2
mount -t tmpfs -o size=1g,mode=1777 tmpfs /tmp   # the working directory stays the code's, wherever that lies
mount -t tmpfs -o size=1g,mode=1777 tmpfs /dev/shm
mkdir /tmp/home /tmp/code
for file in "$@"; do mount --bind /dev/null "$file"; done
case $code in
  ours) mount --bind . /tmp/code ;;
  other) cp -r raypoly actors workflows tests configs /tmp/code
         sed -i 's/^__version__ = .*/__version__ = "0.0.1"/' /tmp/code/raypoly/core/__init__.py ;;
esac
echo up
read -r _ || true
"""
_AGREED = """
import ray, sys, time
ray.init(log_to_driver=False, logging_level="ERROR")
while {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]} != set(sys.argv[1:]):
    time.sleep(0.5)
"""


@dataclass
class RealHost:
    """A host that is up."""

    name: str
    cable: Host
    trouble: str
    """One of `BEFORE`, or empty."""
    first: subprocess.Popen[str]
    pid: int
    """Of its first process, as this machine counts."""
    environment: Mapping[str, str]

    def inside(self, **environment: str) -> list[str]:
        """What to put before a command, so that it runs there."""
        variables = [f"{name}={value}" for name, value in {**self.environment, **environment}.items()]
        spaces = ("--mount", "--pid", "--uts", "--ipc", "--net")
        return ["nsenter", "--target", str(self.pid), *spaces, *_ENV, *variables]

    @property
    def pids(self) -> Iterator[int]:
        """Its processes, as this machine counts them."""
        own = os.readlink(f"/proc/{self.pid}/ns/pid")
        for pid, _ in parents():
            with contextlib.suppress(OSError):  # it has just ended
                if os.readlink(f"/proc/{pid}/ns/pid") == own:
                    yield pid

    @property
    def raylet(self) -> int:
        """The raylet's process id; 0 if there is none."""
        return next((pid for pid in self.pids if process_title(pid).endswith("/raylet/raylet")), 0)

    def has(self, title: str) -> bool:
        return any(process_title(pid).startswith(f"ray::{title}") for pid in self.pids)

    def fill_disk(self) -> None:
        """Leave 64 KiB of its /tmp."""
        disk = os.statvfs(f"/proc/{self.pid}/root/tmp")
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        command = ["mount", "-o", f"remount,size={used + (64 << 10)}", "/tmp"]
        subprocess.run([*self.inside(), *command], check=True, capture_output=True)

    def stop(self) -> None:
        assert self.first.stdin is not None
        self.first.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.first.wait(5)
        self.first.kill()  # takes the first process along
        self.first.wait()


class HeadDriver(Driver):
    """A run's command, given on the head."""

    hosts: RealHosts
    as_job = False  # whether the code is the `working_dir`, as `ray job submit --working-dir .` makes it

    @property
    def command(self) -> list[str]:
        job = {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"working_dir": "/tmp/code"}})}
        inside = self.hosts.head.inside(RAY_ADDRESS=self.hosts.address, **(job if self.as_job else {}))
        return [*inside, *super().command]


class RealHosts:
    """Up inside `with`. Raises `Impossible` where this machine can't have them."""

    def __init__(
        self,
        count: int,
        token: bool = False,
        cpus: int = 4,
        environment: Mapping[str, str] | None = None,
        dashboard: bool = False,
    ):
        """The first is the head, which has no CPU for actors; each other has `cpus`. `environment`: of all hosts.
        `dashboard`: the head takes jobs, at `dashboard_address`; they bring the code."""
        self._count, self._cpus, self._dashboard = count, cpus, dashboard
        self.trouble = ""
        """A fault of `BEFORE` that the last host has after the next `restore`, until that after it."""
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self._environment = {
            "HOME": "/tmp/home",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAYPOLY_CACHE": str(cache_root()),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_agent_register_timeout_ms": "120000",  # this machine may be busy; Ray's default is too short for it
            **(auth if token else {"RAY_AUTH_MODE": "disabled"}),
            **(environment or {}),
        }
        self._hosts: list[RealHost] = []
        self._why = ""  # Ray did not start on a host
        self.used = 0  # no node joins in the middle of a run

    def __enter__(self) -> RealHosts:
        if os.geteuid() != 0:
            raise Impossible("this is another user")
        if missing := [name for name in ("unshare", "nsenter") if shutil.which(name) is None]:
            raise Impossible(f"there is no `{missing[0]}` command (util-linux)")
        with contextlib.ExitStack() as stack:
            self.network = stack.enter_context(Network())
            stack.callback(self._stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def head(self) -> RealHost:
        return self._hosts[0]

    @property
    def all(self) -> Sequence[RealHost]:
        """The head first."""
        return self._hosts

    @property
    def address(self) -> str:
        return f"{self.head.cable.address}:{_PORT}"

    @property
    def dashboard_address(self) -> str:
        return f"http://{self.head.cable.address}:8265"

    def run(self, command: Sequence[str], timeout: float | None = None) -> str:
        """Run a command on the head, and return what it prints."""
        command = [*self.head.inside(RAY_ADDRESS=self.address), *command]
        return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, timeout=timeout).stdout

    @contextlib.contextmanager
    def judge_server(self) -> Iterator[str]:
        """A server of OpenAI's kind on a host of its own, which `SILENT` cuts off. Yields its address."""
        self._judge = self.network.host()
        server = Server(host=self._judge.address)
        self._judge.run(server.open)
        try:
            yield server.url
        finally:
            server.end()

    def restore(self) -> None:
        """All hosts are up and have their part of Ray, and the last one its `trouble`."""
        troubles = [""] * (self._count - 1) + [self.trouble]
        self.trouble = ""
        for _ in range(_TRIES):  # a busy machine may need them
            if not (self._hosts and self.head.raylet):
                self._stop()
                self._hosts = [self._host(0, "")]
                self._start_ray(self._hosts)
            for at, trouble in enumerate(troubles):
                if at == len(self._hosts):
                    self._hosts.append(self._host(at, trouble))
                elif self._hosts[at].trouble != trouble or not self._hosts[at].raylet:
                    self._remove(self._hosts[at])
                    self._hosts[at] = self._host(at, trouble)
            self._start_ray([host for host in self._hosts if not host.raylet])
            if all(host.raylet for host in self._hosts):
                break
        else:
            raise TimeoutError(f"Ray did not start on all hosts in {_TRIES} tries: {self._why}")
        # Ray takes a removed host for alive until its health checks have failed, and starts actors there
        self.run([sys.executable, "-c", _AGREED, *(host.cable.address for host in self._hosts)], _START_SECONDS)
        if troubles[-1] == "full-disk":
            self._hosts[-1].fill_disk()

    def mend(self) -> None:
        """Start all anew where the head is gone: without it no command can be given."""
        if not self.head.raylet:
            self._stop()
            self.restore()

    def hit(self, kind: str, actor: str, seconds: float) -> bool:
        """Do it to the host that an actor is on, for so long. Returns False if there is no such actor."""
        if kind in BEFORE:
            return True
        if kind == SILENT:
            with self._judge.cut_off():
                time.sleep(seconds)
            return True
        struck = self._hosts[:1] if kind == "lose-head" else [each for each in self._hosts if each.has(TITLES[actor])]
        if not struck:
            return False
        host = struck[0]
        if kind in ("kill-raylet", "lose-head"):
            for pid in [host.raylet] if kind == "kill-raylet" else set(host.pids) - {host.pid}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return True
        during = {"cut": lambda _: host.cable.cut_off(), "half-open": self._half_open, "slow": self._slow}[kind]
        with during(host):
            time.sleep(seconds)
        return True

    @contextlib.contextmanager
    def _half_open(self, host: RealHost) -> Iterator[None]:
        """What it sends to the other hosts is lost; what they send arrives."""
        neighbour, others = ("-n", host.cable.name, "neighbour"), [each for each in self._hosts if each is not host]
        for other in others:
            nowhere = ("lladdr", "02:00:00:00:00:01", "nud", "permanent")
            ip(*neighbour, "replace", other.cable.address, "dev", "eth0", *nowhere)
        try:
            yield
        finally:
            for other in others:
                ip(*neighbour, "del", other.cable.address, "dev", "eth0")

    @contextlib.contextmanager
    def _slow(self, host: RealHost) -> Iterator[None]:
        bridge, ends = self.network.bridge, (f"{self.network.bridge}-t0", f"{self.network.bridge}-t1")
        side = f"{bridge}s"
        with slow_cable(ends, DELAY, LOSS):
            ip("link", "add", side, "type", "bridge")
            try:
                ip("link", "set", side, "up")
                for link, master in ((ends[0], side), (ends[1], bridge), (host.cable.link, side)):
                    ip("link", "set", link, "master", master, "up")
                yield
            finally:
                ip("link", "set", host.cable.link, "master", bridge)
                ip("link", "delete", side)

    def _host(self, at: int, trouble: str) -> RealHost:
        cable, code = self.network.host(), BEFORE.get(trouble, "ours")
        name = f"host-{chr(ord('a') + at)}"
        installed = Path(sysconfig.get_paths()["purelib"]).glob("__editable__.raypoly*.pth")
        spaces = ("--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
        command = ["unshare", *spaces, "bash", "-c", _SET_UP, "host", name, code, *map(str, installed)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        first = cable.run(lambda: subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes))
        assert first.stdout is not None
        if first.stdout.readline() != "up\n":
            raise Impossible("mount, PID and UTS namespaces can't be made")
        pid = next(pid for pid, parent in parents() if parent == first.pid)
        code_path = {} if code == "none" or self._dashboard else {"PYTHONPATH": "/tmp/code"}
        return RealHost(name, cable, trouble, first, pid, {**self._environment, **code_path})

    def _start_ray(self, hosts: Sequence[RealHost]) -> None:
        """Side by side; one that fails has no raylet."""
        started = []
        for host in hosts:
            head = host is self.head
            shown = ["--dashboard-host=0.0.0.0"] if self._dashboard else ["--include-dashboard=false"]
            where = ["--head", f"--port={_PORT}", *shown] if head else ["--address", self.address]
            size = [f"--num-cpus={0 if head else self._cpus}", f"--object-store-memory={128 << 20}"]
            command = [*host.inside(), "nice", "-n", "-5", "ray", "start", *where, *size]
            command.append(f"--node-ip-address={host.cable.address}")
            with open(f"/proc/{host.pid}/root/tmp/ray-start.log", "w") as log:
                started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        for host, process in zip(hosts, started, strict=True):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_START_SECONDS)
            process.kill()
            process.wait()
            if not host.raylet:
                self._why = Path(f"/proc/{host.pid}/root/tmp/ray-start.log").read_text()[-500:]

    def _remove(self, host: RealHost) -> None:
        host.stop()
        self.network.remove(host.cable)

    def _stop(self) -> None:
        while self._hosts:
            self._remove(self._hosts.pop())
