"""How much memory this machine uses while something goes on: of its GPUs as nvidia-smi counts them, and its own.

with Peak() as peak:
    ...
peak.gpu, peak.host      # bytes at most; `gpu` is None without one
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

from raypoly.planning.gpus import ask_nvidia_smi


class MemoryPeak:
    """The most memory in use, looked at every `every` seconds from a thread; a peak between two looks is missed."""

    def __init__(self, every: float = 0.25) -> None:
        self._every, self._over = every, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak", daemon=True)
        self.gpu: int | None = None
        """Of the GPU that used most."""
        self.host = 0

    def __enter__(self) -> MemoryPeak:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            self._look()

    def _look(self) -> None:
        self.host = max(self.host, host_used())
        used = gpu_used()
        if used is not None:
            self.gpu = max(self.gpu or 0, used)


def host_used() -> int:
    """Bytes of this machine's memory that could not be had now."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total - free


def gpu_used() -> int | None:
    """Bytes used of the GPU that uses most; None without one, or where it does not say."""
    answer = ask_nvidia_smi("memory.used")
    try:
        return None if answer is None else max(int(line) for line in answer.split()) << 20
    except ValueError:
        return None
