"""What devices hold and do, how much of their memory is in use, and which parts of a run stand on them.

    choose_device("h200", free).memory     # bytes that PyTorch can allocate, less than the name says
    choose_device(None, free)              # the GPU that nvidia-smi shows, else the CPU
    gpu_to_plan(None, configs, say)        # "h200" where these runs need a GPU and none is here
    layout_of(config, device).gpus         # how many the run takes
    with MemoryPeak() as peak: ...         # peak.gpu, peak.host: the most bytes in use meanwhile

Memory is what PyTorch reports of such a board. Products are dense bf16 with float32 sums, without sparsity, and
bandwidth is that of the board's memory, by NVIDIA's data sheets.
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
from typing import Literal

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.planning.placement import needs_gpu, resolve_placement

GIB = 1 << 30


@dataclass(frozen=True)
class Device:
    """A device's numbers; None where unknown."""

    name: str
    memory: int
    """Bytes of one board."""
    flops: float | None = None
    """Dense bf16 products, floating-point operations a second."""
    bandwidth: float | None = None
    """Bytes a second of its memory."""
    gpu: bool = True
    count: int | None = None
    """How many there are on this machine; None where it was only named."""


def _board(name: str, gib: float, tera_flops: float, tera_bytes: float) -> Device:
    return Device(name, round(gib * GIB), tera_flops * 1e12, tera_bytes * 1e12)


BOARDS: Mapping[str, Device] = {
    "b200": _board("NVIDIA B200", 178.3, 2250, 7.7),
    "h200": _board("NVIDIA H200", 139.8, 989, 4.8),
    "h100": _board("NVIDIA H100 80GB SXM", 79.1, 989, 3.35),
    "h100-pcie": _board("NVIDIA H100 80GB PCIe", 79.1, 756, 2.0),
    "a100": _board("NVIDIA A100 80GB SXM", 79.1, 312, 2.039),
    "a100-40gb": _board("NVIDIA A100 40GB SXM", 39.4, 312, 1.555),
    "l40s": _board("NVIDIA L40S", 44.4, 362, 0.864),
    "a10g": _board("NVIDIA A10G", 22.0, 70, 0.6),
    "l4": _board("NVIDIA L4", 22.0, 121, 0.3),
    "rtx4090": _board("NVIDIA RTX 4090", 23.6, 165, 1.008),
}
"""By the word that `--gpu` takes."""


def find_board(word: str) -> Device:
    """Raises `UsageError` where no such board is known."""
    board = BOARDS.get(word.lower().replace("_", "-").replace(" ", ""))
    if board is None:
        raise UsageError(f"--gpu {word} is not known: {', '.join(BOARDS)}.")
    return board


def ask_nvidia_smi(fields: str) -> str | None:
    """The fields of each GPU that this process may use (`CUDA_VISIBLE_DEVICES`), a line each; None without a GPU, or
    where nvidia-smi fails."""
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
    """What nvidia-smi said, one line a GPU: name, total and reserved MiB. None where it can't be read."""
    lines = [line.split(",") for line in answer.splitlines() if line.strip()]
    try:
        name, total, reserved = (field.strip() for field in lines[0])
        memory = (int(total) - (int(reserved) if reserved.isdigit() else 0)) << 20
    except (IndexError, ValueError):
        return None
    like = _like(name, memory)
    flops, bandwidth = (None, None) if like is None else (like.flops, like.bandwidth)
    return Device(name, memory, flops, bandwidth, count=len(lines))


def _like(name: str, memory: int) -> Device | None:
    """The known board of that name; of several the one with such a memory, else of such a bus."""
    words = name.upper().replace("-", " ").split()
    boards = [device for word, device in BOARDS.items() if word.partition("-")[0].upper() in "".join(words)]
    near = [device for device in boards if abs(device.memory - memory) < 0.15 * memory]
    same_bus = [device for device in near if ("PCIE" in words) == ("PCIe" in device.name)]
    return next(iter([*same_bus, *near]), None)


def choose_device(word: str | None, free_memory: int) -> Device:
    """The board named, else the GPU found, else this machine's CPU with what is free of its memory."""
    if word is not None:
        return find_board(word)
    answer = ask_nvidia_smi("name,memory.total,memory.reserved")
    found = None if answer is None else parse_nvidia_smi(answer)
    return found or Device("this machine's CPU", free_memory, gpu=False, count=1)


def gpu_to_plan(word: str | None, configs: Iterable[Config], say: Callable[[str], None]) -> str | None:
    """The word for `choose_device` by which a dry run plans these runs: the one given, or an H200's where none is
    given, a run needs a GPU and none is here. It says so then."""
    if word is not None or not any(needs_gpu(config.generator) for config in configs) or choose_device(None, 0).gpu:
        return word
    say("Note: no GPU is here, and the config needs one: this is planned for an NVIDIA H200; --gpu names another.")
    return "h200"


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

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            self._look()

    def _look(self) -> None:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        total, free = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
        self.host = max(self.host, total - free)
        with suppress(ValueError):  # a GPU that does not say
            if answer := ask_nvidia_smi("memory.used"):
                self.gpu = max(self.gpu or 0, max(int(line) for line in answer.split()) << 20)


Kind = Literal["cpu", "colocated", "split"]


@dataclass(frozen=True)
class DeviceLayout:
    """`colocated`: each engine sleeps while the rank beside it works; `split`: GPUs of their own."""

    kind: Kind
    ranks: int = 1
    """The learner's ranks; each holds its share of weights, gradients and moments."""
    engines: int = 1
    through_host: bool = True
    """Whether new weights reach the engines through the host's memory."""

    @property
    def gpus(self) -> int:
        """GPUs that a run takes."""
        if self.kind == "cpu":
            return 0
        return self.ranks + self.engines if self.kind == "split" else self.ranks


def layout_of(config: Config, device: Device) -> DeviceLayout:
    """The config's layout on this machine, or on as many boards as it takes if one is only named.

    Raises `UsageError` where there are too few.
    """
    ranks, engines, placement = config.train.ranks, config.generator.engines, config.generator.placement
    shared = placement == "colocated" or (placement == "auto" and ranks == engines == 1)
    gpus = 0 if not device.gpu else device.count or (ranks if shared else ranks + engines)
    found = resolve_placement(config.generator, gpus, ranks)
    kind: Kind = found.kind if found.on_gpu else "cpu"
    return DeviceLayout(kind, ranks, engines, through_host=found.transport not in ("ipc", "nccl"))
