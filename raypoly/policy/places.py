"""Where the processes of one learner are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A rank among others, and where they meet."""

    rank: int
    size: int
    host: str
    port: int
    """A `torch.distributed.TCPStore` of rank 0 listens there."""
