"""Weight transfer from the learner's process into an engine's; one file for each transport.

    sender, receiver = build_sender(name), build_receiver(name)      # each in its own process
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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from raypoly.core.errors import WeightsMismatch
from raypoly.core.plugins import load_plugin

if TYPE_CHECKING:
    import torch

Named: TypeAlias = "Iterable[tuple[str, torch.Tensor]]"
"""Tensors by their transformers names."""

SENDERS: Mapping[str, str] = {
    "shared_memory": "raypoly.rollouts.engines.transfer.shared_memory:SharedMemorySender",
    "gloo": "raypoly.rollouts.engines.transfer.gloo:GlooSender",
    "ipc": "raypoly.rollouts.engines.vllm_transfer:IpcSender",
    "nccl": "raypoly.rollouts.engines.vllm_transfer:NcclSender",
}
RECEIVERS: Mapping[str, str] = {
    "shared_memory": "raypoly.rollouts.engines.transfer.shared_memory:SharedMemoryReceiver",
    "gloo": "raypoly.rollouts.engines.transfer.gloo:GlooReceiver",
}
"""vLLM itself receives the GPU's transports (`raypoly.rollouts.engines.vllm_transfer`)."""
COLLECTIVE = ("gloo", "nccl")
"""Transports whose two sides work at the same time; in the others `send` does nothing."""
BY_PAIRS = ("ipc",)
"""Transports in which each rank of the learner offers whole weights to the engine on its GPU, the one of its number. In
the others rank 0 sends them. The other ranks only take part in gathering them: memory that a rank exports and nobody
opens stays allocated."""


@dataclass(frozen=True)
class Piece:
    """One tensor of a parcel."""

    name: str
    dtype: str
    """Its name in torch."""
    shape: tuple[int, ...]

    @property
    def type(self) -> torch.dtype:
        import torch

        found: torch.dtype = getattr(torch, self.dtype)
        return found

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.type.itemsize


@dataclass(frozen=True)
class Parcel:
    """A description of offered weights, which a receiver needs."""

    version: int
    """The weight version of the sender."""
    pieces: tuple[Piece, ...] = ()
    """In the order of transfer."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The transport's own, such as the address of the memory."""
    weights: Mapping[str, Any] | None = None
    """float32 arrays by name, for transport by Ray's objects."""


class Sender(ABC):
    """The learner's side; one for each engine if the transport is collective. Built as `Class(dtype)`."""

    def listen(self, address: str) -> Mapping[str, Any]:
        """The argument of the receiver's `connect`; `address` is this machine's. Default: empty."""
        return {}

    def connect(self) -> None:  # noqa: B027
        """Return when the receiver has connected. Default: at once."""

    @abstractmethod
    def offer(self, weights: Named, version: int) -> Parcel:
        """Prepare the weights, which must not change before `withdraw`."""

    def send(self) -> None:  # noqa: B027
        """Return when the receiver has all weights. Default: at once, since receivers read by themselves."""

    @abstractmethod
    def withdraw(self) -> None:
        """Release the offered weights."""


class GatheringRank(Sender):
    """For a rank whose weights another sends: it takes part in gathering them."""

    def offer(self, weights: Named, version: int) -> Parcel:
        for _ in weights:
            pass
        return Parcel(version)

    def withdraw(self) -> None:
        """Nothing is held."""


class Receiver(ABC):
    """The engine's side. Built as `Class()`."""

    def connect(self, info: Mapping[str, Any]) -> None:  # noqa: B027
        """Connect to the sender whose `listen` returned `info`. Default: nothing to do."""

    @abstractmethod
    def receive(self, parcel: Parcel) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors on the host; each is valid until the next is taken.

        Raises `WeightsMismatch` if their version is not the parcel's, `TransferBroken` if the sender is gone.
        """


def build_sender(transport: str, dtype: str, rank: int = 0, engine: int = 0) -> Sender:
    """The sender of a transport for a rank of the learner and an engine, by their numbers; `dtype` is the engine's
    type."""
    if rank != (engine if transport in BY_PAIRS else 0):
        return GatheringRank()
    sender: Sender = load_plugin(transport, SENDERS, "generator.transport")(dtype)
    return sender


def build_receiver(transport: str) -> Receiver:
    receiver: Receiver = load_plugin(transport, RECEIVERS, "generator.transport")()
    return receiver


def pieces_of(weights: Named) -> tuple[Piece, ...]:
    return tuple(Piece(name, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in weights)


def check_version(announced: int, received: int) -> None:
    """Raise `WeightsMismatch` if they differ."""
    if received != announced:
        raise WeightsMismatch(
            f"Weights of version {received} arrived in place of version {announced}: nothing was sampled under them; "
            "start again with the same command and report this."
        )
