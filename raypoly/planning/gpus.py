"""What a device can hold and do: the one named, the one found here, or this machine's CPU.

    chosen("h200", here).memory      # bytes that PyTorch can allocate, less than the name says
    chosen(None, here)               # the GPU that nvidia-smi shows, else the CPU

Memory is what PyTorch reports of such a board. Products are dense bf16 with float32 sums, without sparsity, and
bandwidth is that of the board's memory, by NVIDIA's data sheets.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from raypoly.errors import UsageError

GIB = 1 << 30


@dataclass(frozen=True)
class Device:
    """What is unknown is None."""

    name: str
    memory: int
    """Bytes, of each where there are several."""
    flops: float | None = None
    """Dense bf16 products, floating-point operations a second."""
    bandwidth: float | None = None
    """Of its memory, bytes a second."""
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


def find_gpu() -> Device | None:
    """The first GPU of this machine, and how many there are; None without one."""
    answer = ask_nvidia_smi("name,memory.total,memory.reserved")
    return None if answer is None else parse_nvidia_smi(answer)


def ask_nvidia_smi(fields: str) -> str | None:
    """The fields of each GPU, a line each; None without a GPU, or where nvidia-smi fails."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
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
    boards = [device for word, device in BOARDS.items() if _family(word) in "".join(words)]
    near = [device for device in boards if abs(device.memory - memory) < 0.15 * memory]
    same_bus = [device for device in near if ("PCIE" in words) == ("PCIe" in device.name)]
    return next(iter([*same_bus, *near]), None)


def _family(word: str) -> str:
    return word.partition("-")[0].upper()


def choose_device(word: str | None, free_memory: int) -> Device:
    """The board named, else the GPU found, else this machine's CPU with what is free of its memory."""
    if word is not None:
        return find_board(word)
    return find_gpu() or Device("this machine's CPU", free_memory, gpu=False, count=1)
