"""Ranks (processes) of a learner. `Ranks` is a single one, without a process group; `ShardedRanks` are several.

learner = PolicyLearner(path, config, loss, temperature, model, ranks)     # in each of ranks.size processes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import Module

from raypoly.learner.weight_hash import WeightDigest, host_copy

T = TypeVar("T")
P = ParamSpec("P")
M = TypeVar("M", bound=Module)
Present = Callable[[Tensor], Tensor]
"""`raypoly.learner.offload.Offload.present`."""


def as_it_is(tensor: Tensor) -> Tensor:
    return tensor


class Ranks:
    """All of a learner that depends on the number of ranks. All ranks call the same methods in the same order."""

    rank = 0
    size = 1

    def shard(self, model: Module, bf16: bool) -> None:
        """Keep this rank's part of the model's weights."""

    def run(self, model: M, function: Callable[Concatenate[M, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function(model, ...)` with whole weights, also in its backward pass."""
        return function(model, *args, **kwargs)

    def whole(self, tensor: Tensor) -> Tensor:
        """The whole tensor, of which each rank has a part."""
        return tensor

    def lead(self, make: Callable[[str], Tensor], work: Callable[[Callable[[str], Tensor]], None]) -> None:
        """Do `work` on rank 0, which asks for tensors by name in any order. All ranks take part in `make`."""
        work(make)

    def gather(self, value: T) -> list[T]:
        """Each rank's value, in rank order."""
        return [value]

    def digest(self, weights: Mapping[str, Tensor], hashed: bool, present: Present = as_it_is) -> str:
        """`weight_digest` of the whole weights, of which one is whole at a time."""
        digest = WeightDigest(hashed)
        for name in sorted(weights):
            tensor = self.whole(present(weights[name]))
            if self.rank == 0:
                digest.add(name, tensor)
        return self.gather(digest.hex())[0]

    def owned_copies(self, tensors: Mapping[str, Tensor], present: Present = as_it_is) -> dict[str, Tensor]:
        """Copies on the host of the whole tensors that this rank writes; one rank writes each."""
        return {name: host_copy(present(tensor)) for name, tensor in tensors.items()}

    def distribute(self, found: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """This rank's parts of all tensors that ranks have read, of which it has read `found` whole."""
        yield from ((name, found[name]) for name in sorted(found))


ONE = Ranks()


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
