"""Shards of a checkpoint: every rank of a learner writes its own straight to the store, and reads them back. The
finished model's weights, which rank 0 writes.

writer = ShardWriter(store.location, options, step=10, epoch=2, ranks=4)     # picklable: goes to each rank
shards = writer.write(rank, [("optimizer.safetensors", data), ...])          # the manifest's entries
ModelWriter(store.location, options, epoch=2).write("model.safetensors", pieces)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from raypoly.core.errors import CorruptData, StaleEpoch, UsageError
from raypoly.run.store import Store, newest_epoch, open_store
from raypoly.run.store.location import Location, StorageOptions
from raypoly.run.store.store import Pieces

WEIGHTS = "model.safetensors"
"""The part that holds the policy's weights, by their names in transformers."""
INDEX = "model.safetensors.index.json"
"""Says in which files weights are, where they are in several."""
MODEL = "model/"
"""The folder of the finished model."""


@dataclass(frozen=True)
class Shard:
    """A file of a checkpoint."""

    name: str
    sha256: str
    bytes: int
    rank: int | None = None
    """None for the driver."""
    part: str = ""
    """The rank's name for it: `optimizer.safetensors`."""
    tensors: tuple[str, ...] = ()
    """For `WEIGHTS`: the names of its tensors."""


@dataclass(frozen=True)
class RunWitness:
    """An object that only this run's storage holds, for a machine that is to write there."""

    location: Location
    options: StorageOptions
    key: str
    content: bytes

    def find(self, node: str) -> None:
        """Raises `UsageError` if this machine, `node`, does not see the run."""
        store = open_store(self.location, self.options, make=False)
        if not store.exists(self.key) or store.read(self.key) != self.content:
            raise UsageError(
                f"Node {node}, where the learner started, does not see {store.uri} and could write no checkpoint: "
                "give a run.dir that all machines share (NFS, s3://...)."
            )


@dataclass(frozen=True)
class ShardWriter:
    location: Location
    options: StorageOptions
    step: int
    epoch: int
    ranks: int

    def write(self, rank: int, parts: Iterable[tuple[str, bytes]]) -> tuple[Shard, ...]:
        """Commit a rank's parts, one at a time.

        Raises `StorageError`, `StaleEpoch` if the driver was overtaken, `UsageError` if this machine can't see the run.
        """
        store = open_store(self.location, self.options, make=False)
        _check_epoch(store, self.epoch, rank)
        shards = []
        for part, data in parts:
            name = shard_name(part, self.epoch, rank)
            store.commit(f"{checkpoint_folder(self.step)}{name}", data)
            tensors = tuple(sorted(read_header(data))) if part == WEIGHTS else ()
            shards.append(Shard(name, hashlib.sha256(data).hexdigest(), len(data), rank, part, tensors))
        return tuple(shards)


@dataclass(frozen=True)
class ModelWriter:
    location: Location
    options: StorageOptions
    epoch: int

    def write(self, name: str, pieces: Pieces, beat: Callable[[], None] = lambda: None) -> None:
        """Replace a file of the finished model, which is whole on return. `beat` is called after each piece.

        Raises as `ShardWriter.write`.
        """
        store = open_store(self.location, self.options, make=False)
        _check_epoch(store, self.epoch, 0)

        def made() -> Iterator[bytes]:
            for piece in pieces.make():
                yield piece
                beat()
            # Before the file has its name: writing takes minutes. In another thread, since an object store's library
            # makes pieces where it can send no request.
            with ThreadPoolExecutor(1) as alone:
                alone.submit(_check_epoch, store, self.epoch, 0).result()

        store.put_mutable(f"{MODEL}{name}", Pieces(pieces.size, made))


def _check_epoch(store: Store, own: int, rank: int) -> None:
    epoch = newest_epoch(store)
    if epoch is None or epoch < own:
        raise UsageError(
            f"Rank {rank} of the learner does not see the run in {store.uri} from its machine: "
            "give a run.dir that all machines share (NFS, s3://...)."
        )
    if epoch > own:
        raise StaleEpoch(f"{store.uri} was taken over (epoch {epoch}): rank {rank} writes nothing there.")


@dataclass(frozen=True)
class ShardReader:
    location: Location
    options: StorageOptions
    step: int
    ranks: int
    """How many wrote it."""
    shards: tuple[Shard, ...]

    def share(self, rank: int, ranks: int) -> tuple[Mapping[str, bytes], ...]:
        """A reading rank's parts; every writer's go to one reader. Raises as `read`."""
        return tuple(self.read(writer) for writer in range(rank, self.ranks, ranks))

    def read(self, rank: int) -> Mapping[str, bytes]:
        """A rank's parts by name. Raises `StorageError`, `CorruptData`."""
        store = open_store(self.location, self.options, make=False)
        parts = {}
        for shard in (shard for shard in self.shards if shard.rank == rank):
            key = f"{checkpoint_folder(self.step)}{shard.name}"
            data = store.read(key)
            if hashlib.sha256(data).hexdigest() != shard.sha256:
                raise CorruptData(f"{store.place(key)} is damaged: its checksum does not match its content.")
            parts[shard.part] = data
        return parts


def checkpoint_folder(step: int) -> str:
    return f"checkpoints/step-{step:06d}/"


def shard_name(part: str, epoch: int, rank: int) -> str:
    """`optimizer.safetensors` to `optimizer-epoch-000002-rank-00000.safetensors`."""
    # With the epoch in its name, a late file of an overtaken driver's rank is named by no manifest, and does no harm.
    stem, _, ending = part.rpartition(".")
    return f"{stem}-epoch-{epoch:06d}-rank-{rank:05d}.{ending}"


def read_header(data: bytes) -> dict[str, dict[str, Any]]:
    """`dtype`, `shape`, `data_offsets` of each tensor in a safetensors file, in its order."""
    # The header is JSON after its length, 8 bytes little-endian.
    length = int.from_bytes(data[:8], "little")
    return {name: said for name, said in json.loads(data[8 : 8 + length]).items() if name != "__metadata__"}
