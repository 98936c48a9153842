"""Free memory and disk of a machine."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

GIB = 1024**3


@dataclass(frozen=True)
class FreeResources:
    """Free memory and disk in bytes."""

    memory: int
    disk: int


ELSEWHERE = FreeResources(memory=1 << 60, disk=1 << 60)
"""A machine whose resources are not known: nothing is refused for lack of them."""


def this_machine(folder: Path) -> FreeResources:
    """Free memory, and free disk under `folder`."""
    return FreeResources(_free_memory(), shutil.disk_usage(existing_parent(folder)).free)


def existing_parent(path: Path) -> Path:
    """The nearest folder above `path`, itself included, that exists."""
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())


def _free_memory() -> int:
    """MemAvailable, or the control group's free memory if that is less (containers)."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    limit, used, stat = group / "memory.max", group / "memory.current", group / "memory.stat"
    if limit.is_file() and used.is_file() and limit.read_text().strip() != "max":
        # Inactive file pages count as used, but the kernel drops them when memory is needed.
        cache = next((int(x.split()[1]) for x in stat.read_text().splitlines() if x.startswith("inactive_file ")), 0)
        free = min(free, int(limit.read_text()) - int(used.read_text()) + cache)
    return free
