"""A Ray cluster of simulated machines on this one, for many drivers. Tests kill parts of it.

    with Machines() as machines:
        driver.environment["RAY_ADDRESS"] = machines.address
        machines.kill_actor("learner")
        machines.kill_node("generator")           # the node that the generator is on; another one joins
        machines.partition("scorer", seconds=2)
    machines.lose_node("scorer"), machines.gain_node()

The head has no room for actors, so every actor is on a worker node. Each worker node has a network namespace of its own
if this machine allows them; if not, `why_no_partition` says why.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar
from unittest.mock import patch

from ray.cluster_utils import Cluster

from raypoly.run.store.lease import is_alive
from workflows.startup.ray_cluster import parents

T = TypeVar("T")

TITLES = {"generator": "GeneratorActor", "scorer": "Scorer", "judge": "JudgeActor", "learner": "LearnerActor"}
"""The class of each actor. Ray shows it as the title of the actor's process."""
_TRIES = 8
_SYSTEM = {"prestart_worker_first_driver": False}
"""Start no processes that no actor uses."""
_CUT_OFF = {
    "health_check_initial_delay_ms": 5000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 3000,
    "health_check_failure_threshold": 3,
}
"""Ray takes a node that it can't reach for dead after some 12 s, not after a minute."""


@dataclass
class _Node:
    node: Any
    host: Host | None

    @property
    def raylet(self) -> int:
        """The raylet's process id; 0 if it is dead."""
        for info in self.node.all_processes.get("raylet", []):
            if info.process.poll() is None:
                return int(info.process.pid)
        return 0


class Machines:
    """The cluster; it runs while the `with` block runs."""

    def __init__(self, partitions: bool = True, nodes: int = 2, cpus: int = 32) -> None:
        """`partitions`: each node gets a network of its own. Then 127.0.0.1 is another place on each node.

        `nodes`: worker nodes at first, with so many `cpus` each. There are fewer, but many drivers may share the nodes.
        """
        self._count, self._cpus = nodes, cpus
        self.why_no_partition = "" if partitions else "it was not asked for"
        self._stack = contextlib.ExitStack()
        self._network: Network | None = None
        self._nodes: list[_Node] = []
        self._gained: set[str] = set()

    def __enter__(self) -> Machines:
        with contextlib.ExitStack() as stack:
            self._folder = tempfile.mkdtemp(prefix="rc-", dir="/tmp")  # Ray's sockets need a short path
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            if not self.why_no_partition:
                try:
                    self._network = stack.enter_context(Network())
                except Impossible as reason:
                    self.why_no_partition = str(reason)
            head: dict[str, Any] = {"num_cpus": 0, "include_dashboard": False, "_system_config": _SYSTEM}
            if self._network is not None:
                head |= {"node_ip_address": self._network.address, "_system_config": _SYSTEM | _CUT_OFF}
            self._cluster = self._start(lambda: Cluster(initialize_head=True, head_node_args=head))
            stack.callback(self._cluster.shutdown)
            self.restore()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def address(self) -> str:
        """The value for RAY_ADDRESS."""
        return str(self._cluster.address)

    @property
    def here(self) -> str:
        """The address at which every node reaches this process."""
        return self._network.address if self._network else "127.0.0.1"

    @property
    def used(self) -> int:
        """Nodes that joined since the last `restore` and had a scorer."""
        return len(self._gained.intersection(self._hosts_of("scorer")))

    def hit(self, kind: str, actor: str, seconds: float) -> bool:
        """Kill an actor, or, by its kind, what an actor is on; `gain`: a node joins. Returns False if there is no such
        actor."""
        if kind == "gain":
            self._gained.add(self.gain_node())
            return True
        if kind in TITLES:
            return self.kill_actor(kind)
        if kind == "node":
            return self.kill_node(actor)
        return self.lose_node(actor) if kind == "lose" else self.partition(actor, seconds)

    def is_there(self, actor: str, *calls: str) -> bool:
        """Whether the actor exists and, if calls are named, works on one of them."""
        return self._find(actor, calls or ("",)) is not None

    def wait_until_idle(self, timeout: float = 600) -> None:
        """Wait until no actor is left: Ray ends those of a dead driver. Raises `TimeoutError`."""
        until = time.monotonic() + timeout
        while any(map(self.is_there, TITLES)):
            if time.monotonic() > until:
                raise TimeoutError(f"actors outlive their driver by {timeout:.0f} s")
            time.sleep(0.05)

    def kill_actor(self, actor: str) -> bool:
        """Send SIGKILL to an actor's process. Returns False if there is no such actor."""
        found = self._find(actor)
        if found is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(found[0], signal.SIGKILL)
        while process_title(found[0]):  # a dead one has none
            time.sleep(0.01)
        return True

    def kill_node(self, actor: str) -> bool:
        """Kill the whole node that an actor is on; then another node joins. Returns False if there is no such actor."""
        lost = self.lose_node(actor)
        if lost:
            self.gain_node()
        return lost

    def lose_node(self, actor: str) -> bool:
        """Kill the whole node that an actor is on. Returns False if there is no such actor."""
        found = self._find(actor)
        if found is not None:
            self._remove(found[1])
        return found is not None

    def gain_node(self) -> str:
        """Another node joins. Returns Ray's id of it once Ray lists it."""
        options: dict[str, Any] = {"num_cpus": self._cpus, "object_store_memory": 80 << 20}
        if self._network is None:
            self._nodes.append(_Node(self._start(lambda: self._cluster.add_node(**options)), None))
        else:
            host = self._network.host()
            options |= {"wait": False, "node_ip_address": host.address}
            node = self._start(lambda: host.run(lambda: self._cluster.add_node(**options)))
            self._cluster._wait_for_node(node, 120)
            self._nodes.append(_Node(node, host))
        return str(self._nodes[-1].node.node_id)

    def partition(self, actor: str, seconds: float) -> bool:
        """Cut the network of an actor's node for a time. Returns False if there is no such actor or no namespace."""
        found = self._find(actor)
        if found is None or found[1].host is None:
            return False
        with found[1].host.cut_off():
            time.sleep(seconds)
        return True

    def mend(self) -> None:
        """Replace nodes that have ended by themselves."""
        for node in [node for node in self._nodes if not node.raylet]:
            self._remove(node)
            self.gain_node()

    def restore(self) -> None:
        """Bring back the number of nodes there was at first."""
        self._gained.clear()
        self.mend()
        for node in self._nodes[self._count :]:
            self._remove(node)
        while len(self._nodes) < self._count:
            self.gain_node()

    def _hosts_of(self, actor: str) -> list[str]:
        """Ray's ids of the nodes on which such actors are or were."""
        actors = self._cluster.global_state.actor_table(None).values()
        return [str(each["Address"]["NodeID"]) for each in actors if each["ActorClassName"] == TITLES[actor]]

    def _find(self, actor: str, calls: Sequence[str] = ("",)) -> tuple[int, _Node] | None:
        """An actor's process id and node. Ray puts the current call into the process title."""
        nodes = {node.raylet: node for node in self._nodes}
        for pid, parent in parents():
            title = process_title(pid) if parent in nodes else ""
            if title.startswith(f"ray::{TITLES[actor]}") and any(call in title for call in calls):
                return pid, nodes[parent]
        return None

    def _start(self, start: Callable[[], T]) -> T:
        """Start a part of Ray. On a busy machine Ray's own timeout (30 s) may need several tries."""
        before, handler = _children(), signal.getsignal(signal.SIGTERM)
        with patch.dict(os.environ, {"RAY_TMPDIR": self._folder}):  # so that this cluster is nobody else's default
            for last in (*(_TRIES - 1) * [False], True):
                try:
                    return start()
                except Exception:  # Ray raises a bare one where its processes are slow to come up
                    for pid in _children() - before:
                        os.kill(pid, signal.SIGKILL)
                    if last:
                        raise
                finally:
                    signal.signal(signal.SIGTERM, handler)
        raise AssertionError("unreachable")

    def _remove(self, node: _Node) -> None:
        self._nodes.remove(node)
        self._cluster.remove_node(node.node, allow_graceful=False)
        if self._network is not None and node.host is not None:
            self._network.remove(node.host)


def _children() -> set[int]:
    return {pid for pid, parent in parents() if parent == os.getpid()}


def process_title(pid: int) -> str:
    """A process's title; empty if it is dead."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
    except OSError:
        return ""


T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_NAMESPACES = Path("/run/netns")
_BRIDGE = "02:00:00:00:00:02"


class Impossible(Exception):
    """This machine allows no network namespaces."""


@dataclass
class Host:
    """A namespace with one link to the bridge."""

    name: str
    link: str
    """The bridge's end of its cable."""
    address: str

    def run(self, start: Callable[[], T]) -> T:
        """Call `start` with this thread in the namespace. Processes that it starts stay in it."""
        with open("/proc/thread-self/ns/net") as here, open(_NAMESPACES / self.name) as there:
            _enter(there)
            try:
                return start()
            finally:
                _enter(here)

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Take the link down while the block runs."""
        ip("link", "set", self.link, "down")
        try:
            yield
        finally:
            ip("link", "set", self.link, "up")

    def remove(self) -> None:
        """Remove the namespace. Processes that still live in it keep a dead network."""
        ip("link", "delete", self.link)
        ip("netns", "delete", self.name)


@dataclass
class Network:
    """Simulated hosts that can lose their network: network namespaces on a bridge to this machine.

        with Network() as network:
            host = network.host()                                # an address of its own
            host.run(lambda: subprocess.Popen(["sleep", "9"]))   # a process that lives on it
            with host.cut_off():
                time.sleep(5)                                    # its packets are lost, both ways

    Needs root, or a user namespace with the same rights, and iproute2. Raises `Impossible` if either is missing.
    """

    subnet: str = field(default_factory=lambda: f"10.{150 + os.getpid() // 250 % 100}.{1 + os.getpid() % 250}")
    hosts: list[Host] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bridge = f"rpc{os.getpid()}"
        self._numbers = itertools.count(2)

    @property
    def address(self) -> str:
        """This process's address."""
        return f"{self.subnet}.1"

    def __enter__(self) -> Network:
        _sweep()
        # with an address of its own; else it has the lowest of its hosts', and the others lose it when that one goes
        ip("link", "add", self.bridge, "address", _BRIDGE, "type", "bridge")
        try:
            ip("address", "add", f"{self.address}/24", "dev", self.bridge)
            ip("link", "set", self.bridge, "up")
            self.host().run(lambda: None)
            self.remove(self.hosts[0])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in list(self.hosts):
            self.remove(host)
        ip("link", "delete", self.bridge)

    def host(self) -> Host:
        """Add a host. No address is used twice."""
        number = next(self._numbers)
        host = Host(f"{self.bridge}-{number}", f"rpv{os.getpid()}-{number}"[:15], f"{self.subnet}.{number}")
        ip("netns", "add", host.name)
        self.hosts.append(host)
        ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", host.name, "link", "set", "eth0", "up")
        ip("-n", host.name, "link", "set", "lo", "up")
        # a host without it takes itself for 127.0.0.1: Ray looks which address it would reach 8.8.8.8 from
        ip("-n", host.name, "route", "add", "8.8.8.8", "via", self.address)
        ip("link", "set", host.link, "master", self.bridge, "up")
        return host

    def remove(self, host: Host) -> None:
        self.hosts.remove(host)
        with contextlib.suppress(Impossible):  # half of it may be there
            host.remove()


def _sweep() -> None:
    """Remove namespaces and links that killed processes left."""
    found = [path.name for folder in (_NAMESPACES, Path("/sys/class/net")) for path in sorted(folder.glob("rp[cv]*"))]
    for name in found:
        pid = re.match(r"rp[cv](\d+)", name)
        if pid and not is_alive(int(pid[1])):
            with contextlib.suppress(Impossible):  # one end of a cable takes the other with it
                ip(*(("netns", "delete", name) if (_NAMESPACES / name).exists() else ("link", "delete", name)))


def _enter(namespace: IO[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
        raise Impossible(f"a network namespace can't be entered ({os.strerror(ctypes.get_errno())})")


def ip(*arguments: str) -> None:
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise Impossible("there is no `ip` command (iproute2)") from None
    except subprocess.CalledProcessError as error:
        raise Impossible(f"ip {' '.join(arguments)}: {error.stderr.strip() or error.returncode}") from None
