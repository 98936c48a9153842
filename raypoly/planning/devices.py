"""This machine's free memory and disk; devices: how much memory they have and use, and which parts of a run they hold.

this_machine(folder).memory            # free bytes, also of a container
choose_device("h200", free).memory     # a named board, else what nvidia-smi shows, else the CPU
layout_of(config, device).gpus         # how many the run takes
with MemoryPeak() as peak: ...         # peak.gpu, peak.host: the most bytes in use meanwhile
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.planning.placement import Kind, needs_gpu, refuse_placement, resolve_placement

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


def _memory(name: str) -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields[name].split()[0]) * 1024


def _free_memory() -> int:
    """MemAvailable, or the control group's free memory if that is less (containers)."""
    free = _memory("MemAvailable")
    group = Path("/sys/fs/cgroup")
    limit, used, stat = group / "memory.max", group / "memory.current", group / "memory.stat"
    if limit.is_file() and used.is_file() and limit.read_text().strip() != "max":
        # Inactive file pages count as used, but the kernel drops them when memory is needed.
        cache = next((int(x.split()[1]) for x in stat.read_text().splitlines() if x.startswith("inactive_file ")), 0)
        free = min(free, int(limit.read_text()) - int(used.read_text()) + cache)
    return free


@dataclass(frozen=True)
class Device:
    """A GPU, or a machine's CPU."""

    name: str
    memory: int
    """Bytes of one board that PyTorch can allocate."""
    gpu: bool = True
    count: int | None = None
    """How many there are on this machine; None where it was only named."""


BOARDS: Mapping[str, Device] = {
    word: Device(name, round(gib * GIB))
    for word, name, gib in (
        ("b200", "NVIDIA B200", 178.3),
        ("h200", "NVIDIA H200", 139.8),
        ("h100", "NVIDIA H100 80GB", 79.1),
        ("a100", "NVIDIA A100 80GB", 79.1),
        ("a100-40gb", "NVIDIA A100 40GB", 39.4),
        ("l40s", "NVIDIA L40S", 44.4),
        ("a10g", "NVIDIA A10G", 22.0),
        ("l4", "NVIDIA L4", 22.0),
        ("rtx4090", "NVIDIA RTX 4090", 23.6),
    )
}
"""By the word that `--gpu` takes."""


def ask_nvidia_smi(fields: str) -> str | None:
    """A line for each GPU that this process may use (`CUDA_VISIBLE_DEVICES`); None without, or if nvidia-smi fails."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shutil.which("nvidia-smi") is None or (visible is not None and visible.strip() in ("", "-1")):
        return None
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    command += [f"--id={visible}"] if visible is not None else []
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def parse_nvidia_smi(answer: str) -> Device | None:
    """From a line a GPU of name, total and reserved MiB; None where it can't be read."""
    lines = [line.split(",") for line in answer.splitlines() if line.strip()]
    try:
        name, total, reserved = (field.strip() for field in lines[0])
        memory = (int(total) - (int(reserved) if reserved.isdigit() else 0)) << 20
    except (IndexError, ValueError):
        return None
    return Device(name, memory, count=len(lines))


def choose_device(word: str | None, free_memory: int) -> Device:
    """The board named, else the GPU found, else this machine's CPU with what is free of its memory.

    Raises `UsageError` for an unknown name.
    """
    if word is not None:
        board = BOARDS.get(word.lower().replace("_", "-").replace(" ", ""))
        if board is None:
            raise UsageError(f"--gpu {word} is not known: {', '.join(BOARDS)}.")
        return board
    answer = ask_nvidia_smi("name,memory.total,memory.reserved")
    found = None if answer is None else parse_nvidia_smi(answer)
    return found or Device("this machine's CPU", free_memory, gpu=False, count=1)


def gpu_to_plan(word: str | None, configs: Iterable[Config], say: Callable[[str], None]) -> str | None:
    """The board that a dry run of these configs plans for: the one given, else None for what is here. If a run needs a
    GPU and none is here it is an H200, and `say` gets a note. Raises `UsageError` for an unknown name."""
    if word is not None:
        choose_device(word, 0)  # raises here, before much is imported
        return word
    if not any(needs_gpu(config.generator) for config in configs) or choose_device(None, 0).gpu:
        return None
    say("Note: no GPU is here, and the config needs one: this is planned for an NVIDIA H200; --gpu names another.")
    return "h200"


class MemoryPeak:
    """The most memory in use, looked at every `every` seconds."""

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

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            self._look()

    def _look(self) -> None:
        self.host = max(self.host, _memory("MemTotal") - _memory("MemAvailable"))
        with suppress(ValueError):  # a GPU that does not say
            if answer := ask_nvidia_smi("memory.used"):
                self.gpu = max(self.gpu or 0, max(int(line) for line in answer.split()) << 20)


@dataclass(frozen=True)
class DeviceLayout:
    """The parts of a run on its devices."""

    kind: Kind
    ranks: int = 1
    engines: int = 1
    through_host: bool = True
    """Whether new weights reach the engines through the host's memory."""

    @property
    def gpus(self) -> int:
        if self.kind == "cpu":
            return 0
        return self.ranks + self.engines if self.kind == "split" else self.ranks


def layout_of(config: Config, device: Device) -> DeviceLayout:
    """The config's layout on the devices here, or on as many as it takes if one is only named.

    Raises `UsageError` where there are too few, or not those that `train.ahead` or `train.offload` needs.
    """
    ranks, engines, placement = config.train.ranks, config.generator.engines, config.generator.placement
    alone = ranks == engines == 1 and not config.train.ahead
    shared = placement == "colocated" or (placement == "auto" and alone)
    gpus = 0 if not device.gpu else device.count or (ranks if shared else ranks + engines)
    found = resolve_placement(config.generator, gpus, ranks)
    refuse_placement(config.train, found.kind)
    kind: Kind = found.kind if found.on_gpu else "cpu"
    return DeviceLayout(kind, ranks, engines, through_host=found.transport not in ("ipc", "nccl"))
