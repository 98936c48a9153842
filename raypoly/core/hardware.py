"""What this machine can do, found without importing torch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_CPU = Path("/proc/cpuinfo")
# What oneDNN needs to multiply in bfloat16: AVX-512's core on x86, the extension of that name on ARM.
_ENOUGH = ({"avx512bw", "avx512vl", "avx512dq"}, {"bf16"})


@cache
def multiplies_in_bfloat16() -> bool:
    """Whether bfloat16 is faster than float32 here: on a GPU, or on a CPU that has it. Without that it takes 13 times
    as long."""
    if _NVIDIA.is_dir() and any(_NVIDIA.iterdir()):
        return True
    lines = _CPU.read_text().splitlines() if _CPU.exists() else []
    flags = next((set(line.split()) for line in lines if line.startswith(("flags", "Features"))), set())
    return any(enough <= flags for enough in _ENOUGH)
