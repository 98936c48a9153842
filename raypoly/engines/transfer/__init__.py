"""Weight transfer from the learner's process into an engine's; one file a transport.

    sender, receiver = build_sender(name), build_receiver(name)      # each in its own process
    receiver.connect(sender.listen()); sender.connect()              # at the same time; once
    parcel = sender.offer(weights, version)                          # what a receiver must know
    for name, tensor in receiver.receive(parcel): ...                # at the same time as
    sender.send()
    sender.withdraw()

A parcel names the weight version of the sender. Where weights of another version come, `WeightsMismatch` names both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from raypoly.errors import WeightsMismatch
from raypoly.plugins import load_plugin

if TYPE_CHECKING:
    import torch

Named: TypeAlias = "Iterable[tuple[str, torch.Tensor]]"
"""Tensors by their transformers names."""

SENDERS: Mapping[str, str] = {
    "shared_memory": "raypoly.engines.transfer.shared_memory:SharedMemorySender",
    "gloo": "raypoly.engines.transfer.gloo:GlooSender",
    "ipc": "raypoly.engines.vllm_transfer:IpcSender",
    "nccl": "raypoly.engines.vllm_transfer:NcclSender",
}
RECEIVERS: Mapping[str, str] = {
    "shared_memory": "raypoly.engines.transfer.shared_memory:SharedMemoryReceiver",
    "gloo": "raypoly.engines.transfer.gloo:GlooReceiver",
}
"""The GPU's transports are received by vLLM itself (`raypoly.engines.vllm_transfer`)."""
COLLECTIVE = ("gloo", "nccl")
"""Transports in which both sides work at the same time; in the others `send` does nothing."""


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
    """What a receiver must know to receive weights."""

    version: int
    """The weight version of the sender."""
    pieces: tuple[Piece, ...] = ()
    """In the order in which they come."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The transport's own: where the memory is, how large a message is."""
    weights: Mapping[str, Any] | None = None
    """float32 arrays by name, where they travel as one of Ray's objects."""


class Sender(ABC):
    """The learner's side; one for each engine where the transport is collective. Built as `Class(dtype)`."""

    def listen(self, address: str) -> Mapping[str, Any]:
        """What the receiver's `connect` needs; `address` is this machine's. Default: nothing, the parcel says all."""
        return {}

    def connect(self) -> None:  # noqa: B027
        """Return when the receiver has connected. Default: at once."""

    @abstractmethod
    def offer(self, weights: Named, version: int) -> Parcel:
        """Get the weights ready; they must not change before `withdraw`."""

    def send(self) -> None:  # noqa: B027
        """Return when the receiver has all that was offered. Default: at once, receivers read by themselves."""

    @abstractmethod
    def withdraw(self) -> None:
        """Release what was offered."""


class Receiver(ABC):
    """The engine's side. Built as `Class()`."""

    def connect(self, info: Mapping[str, Any]) -> None:  # noqa: B027
        """Connect to the sender whose `listen` returned `info`. Default: nothing to do."""

    @abstractmethod
    def receive(self, parcel: Parcel) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors on the host; each is valid until the next is taken.

        Raises `WeightsMismatch` where they are of another version than the parcel's, `TransferBroken` where the sender
        is gone.
        """


def build_sender(transport: str, dtype: str) -> Sender:
    """`dtype` is the type in which the engine computes."""
    sender: Sender = load_plugin(transport, SENDERS, "generator.transport")(dtype)
    return sender


def build_receiver(transport: str) -> Receiver:
    receiver: Receiver = load_plugin(transport, RECEIVERS, "generator.transport")()
    return receiver


def pieces_of(weights: Named) -> tuple[Piece, ...]:
    return tuple(Piece(name, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in weights)


def check_version(announced: int, received: int) -> None:
    """Raise `WeightsMismatch` where they differ."""
    if received != announced:
        raise WeightsMismatch(
            f"Weights of version {received} came where version {announced} was announced: nothing was sampled under "
            "them; start again with the same command and report this."
        )
