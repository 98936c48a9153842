"""Simulated hosts that can lose their network: network namespaces on a bridge to this machine.

    with Network() as network:
        host = network.host()                                # an address of its own
        host.run(lambda: subprocess.Popen(["sleep", "9"]))   # a process that lives on it
        with host.cut_off():
            time.sleep(5)                                    # its packets are lost, both ways

Needs root, or a user namespace with the same rights, and iproute2. Raises `Impossible` if either is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

from raypoly.run.store.lease import is_alive

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_NAMESPACES = Path("/run/netns")


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
        _ip("link", "set", self.link, "down")
        try:
            yield
        finally:
            _ip("link", "set", self.link, "up")

    def remove(self) -> None:
        """Remove the namespace. Processes that still live in it keep a dead network."""
        _ip("link", "delete", self.link)
        _ip("netns", "delete", self.name)


@dataclass
class Network:
    """A bridge, this process's address on it, and the hosts."""

    subnet: str = field(default_factory=lambda: f"10.{150 + os.getpid() // 250 % 100}.{1 + os.getpid() % 250}")
    hosts: list[Host] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._bridge = f"rpc{os.getpid()}"
        self._numbers = itertools.count(2)

    @property
    def address(self) -> str:
        """This process's address."""
        return f"{self.subnet}.1"

    def __enter__(self) -> Network:
        _sweep()
        _ip("link", "add", self._bridge, "type", "bridge")
        try:
            _ip("address", "add", f"{self.address}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            self.host().run(lambda: None)
            self.remove(self.hosts[0])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in list(self.hosts):
            self.remove(host)
        _ip("link", "delete", self._bridge)

    def host(self) -> Host:
        """Add a host. No address is used twice."""
        number = next(self._numbers)
        host = Host(f"{self._bridge}-{number}", f"rpv{os.getpid()}-{number}"[:15], f"{self.subnet}.{number}")
        _ip("netns", "add", host.name)
        self.hosts.append(host)
        _ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
        _ip("-n", host.name, "link", "set", "eth0", "up")
        _ip("-n", host.name, "link", "set", "lo", "up")
        _ip("link", "set", host.link, "master", self._bridge, "up")
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
                _ip(*(("netns", "delete", name) if (_NAMESPACES / name).exists() else ("link", "delete", name)))


def _enter(namespace: IO[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
        raise Impossible(f"a network namespace can't be entered ({os.strerror(ctypes.get_errno())})")


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise Impossible("there is no `ip` command (iproute2)") from None
    except subprocess.CalledProcessError as error:
        raise Impossible(f"ip {' '.join(arguments)}: {error.stderr.strip() or error.returncode}") from None
