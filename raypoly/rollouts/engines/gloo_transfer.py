"""Weight transfer in buckets through a process group of two, learner and engine (NCCL between GPUs).

The group is not torch's global one, which belongs to the learner's ranks.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any

import torch
from torch.distributed import BroadcastOptions, ProcessGroupGloo, TCPStore  # type: ignore[attr-defined]

from raypoly.core.errors import TransferBroken
from raypoly.rollouts.engines.transfer import Named, Parcel, Piece, Sender, check_version, pieces_of

_BUCKET = 64 << 20  # bytes of a message, at most; a larger tensor is one by itself
TIMEOUT = timedelta(minutes=10)
"""The driver ends a wait whose other side is gone."""


class GlooSender(Sender):
    """For one engine."""

    def __init__(self, dtype: str) -> None:
        self._store: TCPStore | None = None
        self._link: _Link | None = None
        self._offered: list[tuple[str, torch.Tensor]] = []
        self._parcel = Parcel(-1)

    def listen(self, address: str) -> Mapping[str, Any]:
        self._address = address
        self._store = TCPStore(address, 0, 2, is_master=True, timeout=TIMEOUT, wait_for_workers=False)
        return {"address": address, "port": self._store.port}

    def connect(self) -> None:
        if self._store is None:
            raise RuntimeError("listen() comes before connect()")
        self._link = _Link(self._store, 0, self._address)

    def offer(self, weights: Named, version: int) -> Parcel:
        self._offered = [(name, tensor.detach()) for name, tensor in weights]
        self._parcel = Parcel(version, pieces_of(self._offered), {"bucket": _BUCKET})
        return self._parcel

    def send(self) -> None:
        """Raises `TransferBroken` where the engine is gone."""
        if self._link is None:
            raise RuntimeError("connect() comes before send()")
        self._link.broadcast(torch.tensor([self._parcel.version]))
        for bucket in buckets(self._parcel.pieces, self._parcel.details["bucket"]):
            tensors = [self._offered[index][1] for index in bucket]
            self._link.broadcast(torch.cat([t.contiguous().view(-1).view(torch.uint8).cpu() for t in tensors]))

    def withdraw(self) -> None:
        self._offered = []


class GlooReceiver:
    """The engine's side."""

    def __init__(self) -> None:
        self._link: _Link | None = None

    def connect(self, info: Mapping[str, Any]) -> None:
        """Connect to the sender; `info` is from its `listen`."""
        with socket.create_connection((info["address"], info["port"])) as probe:
            own_address = probe.getsockname()[0]
        store = TCPStore(info["address"], info["port"], 2, is_master=False, timeout=TIMEOUT)
        self._link = _Link(store, 1, own_address)

    def receive(self, parcel: Parcel) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors on the host. Raises `WeightsMismatch`, or `TransferBroken` if the learner is gone. An early end
        closes the link, which ends the learner's wait."""
        if self._link is None:
            raise RuntimeError("connect() comes before receive()")
        try:
            version = torch.zeros(1, dtype=torch.int64)
            self._link.broadcast(version)
            check_version(parcel.version, int(version))
            for bucket in buckets(parcel.pieces, parcel.details["bucket"]):
                yield from _receive_bucket(self._link, [parcel.pieces[index] for index in bucket])
        except BaseException:
            self._link.close()
            raise


def _receive_bucket(link: _Link, pieces: Sequence[Piece]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of the next message."""
    sizes = [piece.size for piece in pieces]
    message = torch.empty(sum(sizes), dtype=torch.uint8)
    link.broadcast(message)
    for piece, end in zip(pieces, accumulate(sizes), strict=True):
        # a copy: a view of bytes may start where its type can't
        yield piece.name, message[end - piece.size : end].clone().view(piece.type).view(piece.shape)


def buckets(pieces: tuple[Piece, ...], limit: int) -> Iterator[list[int]]:
    """The pieces' indices, divided in order into buckets of at most `limit` bytes, or of one larger piece."""
    bucket: list[int] = []
    held = 0
    for index, piece in enumerate(pieces):
        if bucket and held + piece.size > limit:
            yield bucket
            bucket, held = [], 0
        bucket.append(index)
        held += piece.size
    if bucket:
        yield bucket


class _Link:
    """A group of two: rank 0 sends, rank 1 receives."""

    def __init__(self, store: TCPStore, rank: int, address: str) -> None:
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [ProcessGroupGloo.create_device(hostname=address)]
        options._timeout = TIMEOUT
        self._group: Any = _checked(lambda: ProcessGroupGloo(store, rank, 2, options))

    def broadcast(self, tensor: torch.Tensor) -> None:
        """From rank 0, in place."""
        options = BroadcastOptions()
        options.rootRank = 0
        _checked(lambda: self._group.broadcast([tensor], options).wait())

    def close(self) -> None:
        """End the other side's wait."""
        self._group = None


def _checked(work: Callable[[], Any]) -> Any:
    """What `work` returns. Raises `TransferBroken` where gloo fails."""
    try:
        return work()
    except RuntimeError as error:  # gloo has one type for all errors: reset, closed, timed out
        first = str(error).partition("\n")[0]
        raise TransferBroken(f"The other side of a weight transfer is gone ({first}).") from error
