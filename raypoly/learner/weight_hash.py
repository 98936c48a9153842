"""Hash of a tensor's bits, computed where the tensor is, and digest of a model's weights.

    weight_hash(tensor, torch.bfloat16)      # "bfloat16[96, 32]:0c5f...", for a float32 tensor of the learner too

The tensor is rounded to the dtype. The bits of element i, row by row, are a signed integer x(i). Modulo 2**64, with
B = 2**14:

    hash = sum over i of  x(i) * m(i mod B) * m(B + i div B)
    m(k) = the (k + 1)th output of splitmix64 from the seed 0 (G. Steele et al., OOPSLA 2014), its lowest bit set

Odd factors have inverses, so a single changed element always changes the hash. Another order changes it but for chance:
at worst 1 in 2**48 for two bf16 elements, 1 in 2**32 for two float32 ones. It detects mistakes, not an adversary.
Integer sums are exact in every order: CPU, GPU and any division into chunks give the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache

import numpy as np
import torch
from torch import Tensor

HASHED = "hashed-"
"""The beginning of a digest of hashes."""
_BLOCK = 1 << 14
_CHUNK = {"cpu": _BLOCK}  # elements at a time, eight bytes each
# On a CPU torch computes so few in one thread. Threads that wait for each other after every few microseconds take many
# times as long if other processes want the cores.
_LARGE_CHUNK = 1 << 22
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def weight_hash(tensor: Tensor, dtype: torch.dtype, chunk: int | None = None) -> str:
    """Dtype, shape and hash of the tensor rounded to `dtype`; integers keep their type.

    `chunk`: elements at a time, a multiple of 2**14.
    """
    flat = tensor.detach().reshape(-1)
    kept = dtype if tensor.is_floating_point() else tensor.dtype
    size, within = chunk or _CHUNK.get(flat.device.type, _LARGE_CHUNK), _within_block(flat.device)
    sums = torch.zeros(-(-flat.numel() // _BLOCK), dtype=torch.int64, device=flat.device)  # of each block of B
    room = torch.empty(min(size, flat.numel()), dtype=torch.int64, device=flat.device)  # one, for all chunks
    for start in range(0, flat.numel(), size):
        bits = flat[start : start + size].to(kept).view(_INTEGERS[kept.itemsize])
        products, first, blocks = room[: bits.numel()].copy_(bits), start // _BLOCK, bits.numel() // _BLOCK
        whole, rest = products[: blocks * _BLOCK].view(blocks, _BLOCK), products[blocks * _BLOCK :]
        torch.sum(whole.mul_(within), 1, out=sums[first : first + blocks])
        if rest.numel():
            sums[first + blocks] = rest.mul_(within[: rest.numel()]).sum()
    total = (sums * _multipliers(_BLOCK, len(sums)).to(flat.device)).sum()
    return f"{str(kept).removeprefix('torch.')}{list(tensor.shape)}:{int(total) % 2**64:016x}"


@cache
def _within_block(device: torch.device) -> Tensor:
    return _multipliers(0, _BLOCK).to(device)


def _multipliers(first: int, count: int) -> Tensor:
    """m(first) and those after it, int64 [count]."""
    z = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return torch.from_numpy(((z ^ (z >> np.uint64(31))) | np.uint64(1)).view(np.int64))


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the host that shares no memory with any other tensor."""
    return tensor.detach().to("cpu", copy=True).contiguous()


class WeightDigest:
    """SHA-256 over names and bytes of weights, added in the order of their names.

    With `hashed` it is over names and each weight's `weight_hash`, and begins with `HASHED`: bytes on their way from a
    GPU would take as long as a step's gradients.
    """

    def __init__(self, hashed: bool = False) -> None:
        self._hashed, self._sha = hashed, hashlib.sha256()

    def add(self, name: str, tensor: torch.Tensor) -> None:
        self._sha.update(name.encode())
        if self._hashed:
            self._sha.update(weight_hash(tensor, tensor.dtype).encode())
        else:
            self._sha.update(tensor.detach().cpu().contiguous().numpy().data)

    def hex(self) -> str:
        return HASHED * self._hashed + self._sha.hexdigest()


def weight_digest(weights: Mapping[str, torch.Tensor], hashed: bool = False) -> str:
    digest = WeightDigest(hashed)
    for name, tensor in sorted(weights.items()):
        digest.add(name, tensor)
    return digest.hex()
