"""How weights get from the learner's process into an engine's; a file a transport.

    sender, receiver = build_sender(name), build_receiver(name)      # each in its own process
    receiver.connect(sender.listen()); sender.connect()              # at the same time; once
    parcel = sender.offer(weights, version)                          # what a receiver must know
    for name, tensor in receiver.receive(parcel): ...                # at the same time as
    sender.send()
    sender.withdraw()

A parcel says which version the sender has; where memory or messages of another one come, `WeightsMismatch` names both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

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
    """One tensor that comes."""

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
    """What a receiver must know to take weights."""

    version: int
    """Of the weights that the sender has."""
    pieces: tuple[Piece, ...] = ()
    """In the order in which they come."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The transport's own: where the memory is, how large a message."""
    weights: Mapping[str, Any] | None = None
    """float32 arrays by name, where they travel as one of Ray's objects."""


class Sender(Protocol):
    """The learner's side; one for each engine where the transport is collective."""

    def listen(self, address: str) -> Mapping[str, Any]:
        """What the other side's `connect` needs; `address` is this machine's."""
        ...

    def connect(self) -> None:
        """Return when the other side has connected."""
        ...

    def offer(self, weights: Named, version: int) -> Parcel:
        """Get the weights ready; they must not change before `withdraw`."""
        ...

    def send(self) -> None:
        """Return when the other side has all that was offered."""
        ...

    def withdraw(self) -> None:
        """Let go of what was offered."""
        ...


class Receiver(Protocol):
    """The engine's side."""

    def connect(self, info: Mapping[str, Any]) -> None: ...

    def receive(self, parcel: Parcel) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors on the host, each good until the next is asked for.

        Raises `WeightsMismatch` where they are of another version than the parcel's.
        """
        ...


def build_sender(transport: str, dtype: str) -> Sender:
    """`dtype` is the type in which the engine computes."""
    sender: Sender = load_plugin(transport, SENDERS, "generator.transport")(dtype)
    return sender


def build_receiver(transport: str) -> Receiver:
    receiver: Receiver = load_plugin(transport, RECEIVERS, "generator.transport")()
    return receiver


def pieces_of(weights: Named) -> tuple[Piece, ...]:
    return tuple(Piece(name, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in weights)


def check_version(announced: int, came: int) -> None:
    """Raise `WeightsMismatch` where they differ."""
    if came != announced:
        raise WeightsMismatch(
            f"Weights of version {came} came where version {announced} was announced: nothing was sampled under them; "
            "start again with the same command and report this."
        )
