"""How many processes a learner is: here one, which holds everything; `raypoly.policy.sharding` has several.

    learner = PolicyLearner(path, config, loss, temperature, model, join(place))     # in each of place.size processes

The learner asks its ranks for what differs: where weights are, who computes which rows, what is whole, who writes what.
On one rank every answer is what it was asked with, and no process group is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import Module

from raypoly.policy.places import Place
from raypoly.policy.snapshots import host_copy, weight_digest

T = TypeVar("T")
P = ParamSpec("P")
M = TypeVar("M", bound=Module)


class Ranks:
    """One rank. What several do together, each of them must call, in the same order."""

    rank = 0
    size = 1

    def shard(self, model: Module, bf16: bool) -> None:
        """Leave this rank's part of the model's weights in it."""

    def run(self, model: M, function: Callable[Concatenate[M, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`function(model, ...)` with whole weights while it runs and in its backward pass."""
        return function(model, *args, **kwargs)

    def whole(self, tensor: Tensor) -> Tensor:
        """All of a tensor of which each rank has a part."""
        return tensor

    def gather(self, value: T) -> list[T]:
        """Each rank's value, in rank order."""
        return [value]

    def digest(self, weights: Mapping[str, Tensor]) -> str:
        """`weight_digest` of the whole weights."""
        return weight_digest(weights)

    def kept(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies on the host of the whole tensors that this rank writes; each is written by one."""
        return {name: host_copy(tensor) for name, tensor in tensors.items()}

    def placed(self, found: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Tensors that some rank has read, whole; each rank gets its part of all of them."""
        yield from ((name, found[name]) for name in sorted(found))


ONE = Ranks()


def device() -> torch.device:
    """Where a learner computes."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def join(place: Place | None) -> Ranks:
    """The ranks that meet at a place; None is one rank. Returns when all are there."""
    if place is None or place.size == 1:
        return ONE
    from raypoly.policy.sharding import ShardedRanks  # brings FSDP, which one rank does not need

    return ShardedRanks(place, device())
