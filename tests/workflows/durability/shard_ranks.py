"""Ranks in processes of their own that write shards, in a module that brings no library of models."""

from __future__ import annotations

from collections.abc import Iterator

from raypoly.run.store.shards import Shard, ShardWriter
from tests.support.immediate_exit import exit_now


def parts_of(rank: int) -> Iterator[tuple[str, bytes]]:
    yield "optimizer.bin", bytes([rank]) * 500
    yield "rng.bin", b"seed %d" % rank


def write(writer: ShardWriter, rank: int) -> tuple[Shard, ...]:
    return writer.write(rank, parts_of(rank))


def write_and_die(writer: ShardWriter, rank: int) -> None:
    """Rank 1 dies between its first part and its second."""

    def parts() -> Iterator[tuple[str, bytes]]:
        for number, part in enumerate(parts_of(rank)):
            if rank == 1 and number == 1:
                exit_now(9)
            yield part

    writer.write(rank, parts())
