"""Weights, gradients and moments sharded over ranks with PyTorch's FSDP2 (`fully_shard`), layer by layer.

store = RendezvousStore(host)                              # on rank 0's machine: a free port
ranks = ShardedRanks(rank, size, host, store.port, device)       # in each rank's process
ranks.shard(model, bf16=True)                              # keeps rows of each weight's first axis, in float32
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Concatenate, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn import Linear, Module

from raypoly.learner.policy_model import layers_of
from raypoly.learner.ranks import M, P, Present, Ranks, as_it_is
from raypoly.learner.weight_hash import host_copy

T = TypeVar("T")
# A method of a sharded model that FSDP treats as a forward method: weights are whole inside.
_WHOLE = "with_whole_weights"


class RendezvousStore:
    """The place where ranks find each other, on a free port of this machine, as long as this object lives."""

    def __init__(self, host: str) -> None:
        self._store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        self.port: int = self._store.port


class ShardedRanks(Ranks):
    """Several ranks, one process each."""

    def __init__(self, rank: int, size: int, host: str, port: int, device: torch.device) -> None:
        """Returns when every rank is there. A `RendezvousStore` listens at the port."""
        self.rank, self.size, self._device = rank, size, device
        backend = "nccl" if device.type == "cuda" else "gloo"
        store = dist.TCPStore(host, port, is_master=False)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        self._mesh: DeviceMesh = init_device_mesh(device.type, (size,))

    def shard(self, model: Module, bf16: bool) -> None:
        # Several ranks must compute what one computes. Matrices of layers travel rounded, as autocast would round them.
        # Norms, embedding and head travel in float32: norms compute in it, and the head rounds its own factors.
        # Gradients are summed in float32, not averaged: a step's normalisers count the rows of all ranks.
        how: dict[str, Any] = {"mesh": self._mesh}
        plain = MixedPrecisionPolicy(cast_forward_inputs=False)
        rounded = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False) if bf16 else plain
        for layer in layers_of(model):
            if bf16:
                fully_shard(_norms(layer), mp_policy=plain, reshard_after_forward=False, **how)
            fully_shard(layer, mp_policy=rounded, reshard_after_forward=True, **how)
        fully_shard(model, mp_policy=plain, reshard_after_forward=False, **how)
        for module in _sharded(model):
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)
        setattr(model, _WHOLE, types.MethodType(_call, model))
        register_fsdp_forward_method(model, _WHOLE)

    def run(self, model: M, function: Callable[Concatenate[M, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = getattr(model, _WHOLE)(partial(function, model, *args, **kwargs))
        # Whole weights stay for the backward pass, which frees them. Without one nobody else would.
        if not torch.is_grad_enabled():
            for module in _sharded(model):
                module.reshard()
        return result

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def lead(self, make: Callable[[str], Tensor], work: Callable[[Callable[[str], Tensor]], None]) -> None:
        if self.rank:
            while (name := self.gather("")[0]) != "":
                make(name)
            return

        def ask(name: str) -> Tensor:
            self.gather(name)
            return make(name)

        try:
            work(ask)
        finally:
            self.gather("")

    def gather(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def owned_copies(self, tensors: Mapping[str, Tensor], present: Present = as_it_is) -> dict[str, Tensor]:
        owners = assign_writers({name: tensor.numel() for name, tensor in tensors.items()}, self.size)
        copies = {}
        for name in sorted(tensors):
            tensor = self.whole(present(tensors[name]))
            if owners[name] == self.rank:
                copies[name] = host_copy(tensor)
        return copies

    def distribute(self, found: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        # All ranks must enter each collective in one order: by reading rank, then by name. So shapes go round first.
        read = self.gather({name: (tensor.shape, tensor.dtype) for name, tensor in found.items()})
        for reader, described in enumerate(read):
            for name, (shape, dtype) in sorted(described.items()):
                mine = found[name] if reader == self.rank else torch.empty(shape, dtype=dtype)
                tensor = mine.to(self._device)
                if not shape:
                    dist.broadcast(tensor, reader)
                    yield name, tensor
                else:
                    yield name, distribute_tensor(tensor, self._mesh, [Shard(0)], src_data_rank=reader)

    def leave(self) -> None:
        """End the process group."""
        dist.destroy_process_group()


def assign_writers(sizes: Mapping[str, int], ranks: int) -> dict[str, int]:
    """The rank that writes each tensor, by name: the largest first, to the rank with the least to write."""
    loads, owners = [0] * ranks, {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        owner = min(range(ranks), key=loads.__getitem__)
        owners[name] = owner
        loads[owner] += sizes[name]
    return owners


def _norms(layer: Module) -> list[Module]:
    return [
        module
        for module in layer.modules()
        if not isinstance(module, Linear) and next(module.parameters(recurse=False), None) is not None
    ]


def _sharded(model: Module) -> Iterator[FSDPModule]:
    return (module for module in model.modules() if isinstance(module, FSDPModule))


def _call(_model: Module, work: Callable[[], T]) -> T:
    return work()
