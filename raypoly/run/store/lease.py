"""The lease: one driver at a time on a run directory, with an epoch that tells later writes from earlier ones.

The kernel holds it on a local disk (`local_store`), conditional writes and a heartbeat on remote storage
(`remote_lease`).
"""

from __future__ import annotations

import os
import socket
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from raypoly.core.errors import LeaseHeld, StaleEpoch


@dataclass(frozen=True)
class LeaseOwner:
    """A process that owns a lease."""

    host: str
    pid: int
    command: str
    since: str
    """When it took the lease, ISO 8601 in UTC, whole seconds."""
    machine: str = ""
    """Boot id and process namespace, in which its pid is valid; empty if not known."""
    started: str = ""
    """When the process started, in the kernel's ticks: tells it from a later process of the same pid."""

    @classmethod
    def this_process(cls, command: str) -> LeaseOwner:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        pid = os.getpid()
        return cls(socket.gethostname(), pid, command or " ".join(sys.argv), now, _machine(), start_of(pid))

    @property
    def is_here(self) -> bool:
        """Whether it is surely of this machine: two containers may have the same host name."""
        return bool(self.machine) and self.machine == _machine()

    @property
    def is_gone(self) -> bool:
        """True only if this very process surely runs no more."""
        if not self.is_here:
            return False
        return not is_alive(self.pid) or (bool(self.started) and start_of(self.pid) != self.started)

    @property
    def description(self) -> str:
        return f"pid {self.pid} on host {self.host} since {self.since} ({self.command})"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs, under another user
        return True
    return True


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def start_of(pid: int) -> str:
    """When a process began, in clock ticks since the machine did (field 22 of /proc/PID/stat); empty if it is dead."""
    try:
        # Counted after the command's name, which may itself hold spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


class Lease(ABC):
    """The right to write to a run, from `acquire_lease` to `release` or to the process's death."""

    epoch: int

    @abstractmethod
    def check(self) -> None:
        """Raise `StaleEpoch` unless this process still owns the lease. Every commit calls it first."""

    @abstractmethod
    def release(self) -> None:
        """Give the lease back. The next owner can start at once."""


@dataclass(frozen=True)
class LeaseState:
    epoch: int
    lives: bool | None
    """Whether its owner may still write; None if that can't be known from here."""
    summary: str


def lease_held(uri: str, owner: str) -> LeaseHeld:
    return LeaseHeld(f"{uri} is held by {owner}: wait for it or stop it.")


def lease_released(uri: str) -> StaleEpoch:
    return StaleEpoch(f"The lease on {uri} was given back: nothing more may be written.")


def lease_overtaken(uri: str, owner: str, epoch: int, own_epoch: int) -> StaleEpoch:
    return StaleEpoch(
        f"{uri} was taken over by {owner} (epoch {epoch}, this one is {own_epoch}): "
        "this driver stops and writes nothing more."
    )
