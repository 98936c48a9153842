"""Weight transfer through memory of the learner's process that an engine on the same machine reads (CUDA IPC on a GPU).

The memory is an anonymous file, so nothing is left when both processes are gone, however they end.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from raypoly.core.errors import TransferBroken
from raypoly.rollouts.engines.transfer import Named, Parcel, Piece, Receiver, Sender, check_version, pieces_of

_HEADER = 64  # bytes before the first tensor: the version, int64, and room up to a cache line


class SharedMemorySender(Sender):
    """One for all engines."""

    def __init__(self, dtype: str) -> None:
        self._file = -1

    def offer(self, weights: Named, version: int) -> Parcel:
        self.withdraw()
        named = [(name, tensor.detach()) for name, tensor in weights]
        pieces = pieces_of(named)
        size = _HEADER + sum(map(padded, pieces))
        self._file = os.memfd_create("raypoly-weights")
        os.ftruncate(self._file, size)
        with mmap.mmap(self._file, size) as memory:
            memory[:8] = version.to_bytes(8, "little")
            at = _HEADER
            for piece, (_, tensor) in zip(pieces, named, strict=True):
                if piece.size:
                    _place(memory, piece, at).copy_(tensor)
                at += padded(piece)
        return Parcel(version, pieces, {"pid": os.getpid(), "file": self._file, "bytes": size})

    def withdraw(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class SharedMemoryReceiver(Receiver):
    def receive(self, parcel: Parcel) -> Iterator[tuple[str, torch.Tensor]]:
        """As `Receiver.receive`; also `TransferBroken` where the learner has offered other weights since."""
        path = Path(f"/proc/{parcel.details['pid']}/fd/{parcel.details['file']}")
        try:
            with path.open("rb") as file:
                memory = mmap.mmap(file.fileno(), parcel.details["bytes"], access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise TransferBroken(f"The learner's memory of version {parcel.version} can't be read: {error}.") from error
        with contextlib.closing(memory):
            check_version(parcel.version, int.from_bytes(memory[:8], "little"))
            at = _HEADER
            for piece in parcel.pieces:
                # a copy: the memory can't be closed while something refers to it
                copy = _place(memory, piece, at).clone() if piece.size else torch.empty(piece.shape, dtype=piece.type)
                yield piece.name, copy
                at += padded(piece)


def padded(piece: Piece) -> int:
    """A tensor's bytes, rounded up to a cache line."""
    return -(-piece.size // _HEADER) * _HEADER


def _place(memory: mmap.mmap, piece: Piece, at: int) -> torch.Tensor:
    return torch.frombuffer(memory, dtype=piece.type, count=math.prod(piece.shape), offset=at).view(piece.shape)
