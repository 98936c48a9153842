"""A copy of a learner's state on the host, made between two updates and written while training goes on.

for name, data in snapshot.parts(): store.commit(name, data)        # once: it gives its tensors away
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from safetensors.torch import save as save_safetensors

from raypoly.learner.weight_hash import weight_hash
from raypoly.run.store.shards import read_header

OPTIMIZER = "optimizer.safetensors"
META = "learner.json"
ADAPTERS = "adapters.safetensors"
"""Replaces `raypoly.run.store.shards.WEIGHTS` if only adapters are trained."""
HEAD = "loss_head.safetensors"
"""The loss's head, for a loss that has one."""
HASHED = "hashed-"
"""The beginning of a digest of hashes."""
_FORMAT = {"format": "pt"}


@dataclass(frozen=True)
class Snapshot:
    """Copied tensors of one rank at one version."""

    version: int
    """Of the weights."""
    weights: dict[str, torch.Tensor]
    """By their transformers names."""
    weights_part: str
    """The name of their file: `WEIGHTS` or `ADAPTERS`."""
    moments: dict[str, torch.Tensor]
    """The optimizer's state, by `parameter|field`."""
    reference_digest: str | None = None
    """Of the reference model; None if the loss needs none."""
    rank: int = 0
    """The rank whose part of the state this is."""
    weight_digest: str | None = None
    """Of all ranks' weights; None for a single rank."""
    head: dict[str, torch.Tensor] = field(default_factory=dict)
    """Weights of the loss's head."""

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """A checkpoint's files by name, made one at a time. A tensor is freed when it is in its file, so that files
        and tensors together take no more than the copy did."""
        digest = self.weight_digest or ("" if self.rank else weight_digest({**self.weights, **self.head}))
        yield self.weights_part, encode_tensors(self.weights)
        if self.head:
            yield HEAD, encode_tensors(self.head)
        yield OPTIMIZER, encode_tensors(self.moments)
        if self.rank:
            return
        meta: dict[str, object] = {"version": self.version, "weight_digest": digest}
        if self.reference_digest is not None:
            meta["reference_digest"] = self.reference_digest
        yield META, json.dumps(meta).encode()


def encode_tensors(tensors: dict[str, torch.Tensor]) -> bytes:
    """A safetensors file of these tensors on the host, which are taken out of `tensors` one by one.

    Equal to what `safetensors.torch.save` makes, which holds the file twice beside all tensors: of Qwen3-4B's moments
    62 GB, for which there was no room beside them in 125 GiB.
    """
    # Of empty ones it gives the order and the names of dtypes.
    header = read_header(save_safetensors({name: tensor.new_empty(0) for name, tensor in tensors.items()}, _FORMAT))
    end = 0
    for name, said in header.items():
        start, end = end, end + tensors[name].nbytes
        said.update(shape=list(tensors[name].shape), data_offsets=[start, end])
    text = json.dumps({"__metadata__": _FORMAT, **header}, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file = io.BytesIO()
    file.write(len(text).to_bytes(8, "little") + text)
    for name in header:
        file.write(tensors.pop(name).reshape(-1).view(torch.uint8).numpy().data)
    return file.getvalue()  # its own buffer, not a copy


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the host that shares no memory with the tensor, or with another copy of tied weights."""
    return tensor.detach().to("cpu", copy=True).contiguous()


class WeightDigest:
    """The digest of weights that are added in the order of their names; equal iff they are bit-identical.

    SHA-256 over names and bytes. With `hashed` it is over names and each weight's `weight_hash` and begins with
    `HASHED`: that stays on the weights' device, where bytes would take a GPU's learner as long as its gradients, and
    other weights have the same digest by chance alone.
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
    """The `WeightDigest` of all weights."""
    digest = WeightDigest(hashed)
    for name, tensor in sorted(weights.items()):
        digest.add(name, tensor)
    return digest.hex()
