"""Weight transfer from the learner's process into an engine's, other than by Ray's objects.

    sender = build_sender(name, dtype)                               # in the learner; a receiver in the engine
    receiver.connect(sender.listen()); sender.connect()              # at the same time; once
    parcel = sender.offer(weights, version)                          # describes the weights
    for name, tensor in receiver.receive(parcel): ...                # at the same time as
    sender.send()
    sender.withdraw()

A parcel has the sender's weight version. If weights of another version arrive, `WeightsMismatch` names both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from raypoly.core.errors import WeightsMismatch
from raypoly.core.plugins import load_plugin

if TYPE_CHECKING:
    import torch

Named: TypeAlias = "Iterable[tuple[str, torch.Tensor]]"

SENDERS: Mapping[str, str] = {
    "gloo": "raypoly.rollouts.engines.gloo_transfer:GlooSender",
    "ipc": "raypoly.rollouts.engines.vllm_transfer:IpcSender",
    "nccl": "raypoly.rollouts.engines.vllm_transfer:NcclSender",
}
COLLECTIVE = ("gloo", "nccl")
"""Transports whose two sides work at the same time; `send` does nothing in others."""
BY_PAIRS = ("ipc",)
"""Transports in which each rank of the learner offers whole weights to the engine of its number, on its GPU; in others
rank 0 does. Other ranks only take part in gathering: memory that is exported and never opened stays allocated."""


@dataclass(frozen=True)
class Piece:
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def type(self) -> torch.dtype:
        import torch

        found: torch.dtype = getattr(torch, self.dtype)
        return found

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.type.itemsize


@dataclass(frozen=True)
class Parcel:
    """Offered weights, as a receiver needs to know them."""

    version: int
    pieces: tuple[Piece, ...] = ()
    """In the order of transfer."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The transport's own."""
    weights: Mapping[str, Any] | None = None
    """Float32 arrays by name, for Ray's objects."""


class Sender(ABC):
    """The learner's side, for one engine if the transport is collective. Built as `Class(dtype)`."""

    def listen(self, address: str) -> Mapping[str, Any]:
        """The receiver's `info`; `address`: this machine's."""
        return {}

    def connect(self) -> None:  # noqa: B027
        """Return when the receiver has connected."""

    @abstractmethod
    def offer(self, weights: Named, version: int) -> Parcel:
        """Prepare the weights, which must not change before `withdraw`."""

    def send(self) -> None:  # noqa: B027
        """Return when the receiver has all weights; at once where it reads by itself."""

    @abstractmethod
    def withdraw(self) -> None:
        """Release the offered weights."""


class GatheringRank(Sender):
    """A rank that only takes part in gathering the weights that another sends."""

    def offer(self, weights: Named, version: int) -> Parcel:
        for _ in weights:
            pass
        return Parcel(version)

    def withdraw(self) -> None:
        """Nothing is held."""


def build_sender(transport: str, dtype: str, rank: int = 0, engine: int = 0) -> Sender:
    """The sender of a rank of the learner for an engine, by their numbers. `dtype`: the engine's."""
    if rank != (engine if transport in BY_PAIRS else 0):
        return GatheringRank()
    sender: Sender = load_plugin(transport, SENDERS, "generator.transport")(dtype)
    return sender


def pieces_of(weights: Named) -> tuple[Piece, ...]:
    return tuple(Piece(name, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in weights)


def check_version(announced: int, received: int) -> None:
    if received != announced:
        raise WeightsMismatch(
            f"Weights of version {received} arrived in place of version {announced}: nothing was sampled under them; "
            "start again with the same command and report this."
        )
