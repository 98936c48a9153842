"""Checkpoints: what the learner needs to go on from a step, committed whole by a manifest of checksums.

    writer = checkpoints.prepare(step=10, ranks=4)        # the ranks write their shards with it
    checkpoints.commit(writer, shards, {"objective.json": b"{}"})

    checkpoints/step-000010/optimizer-epoch-000002-rank-00000.safetensors ...  config.json  model.safetensors.index.json
    checkpoints/step-000010/manifest.json                 written last: without it there is no checkpoint

If `commit` is given a `config.json`, the folder is a Hugging Face one: the index names the shards with the weights.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from raypoly.core.errors import CorruptData, NewerSchema, StaleEpoch, StorageError
from raypoly.run.store import Lease, Store
from raypoly.run.store.location import StorageOptions
from raypoly.run.store.remote_store import RemoteStore
from raypoly.run.store.shards import WEIGHTS, Shard, ShardReader, ShardWriter, checkpoint_folder

PREFIX = "checkpoints/"
_INDEX = "model.safetensors.index.json"
_STEP = re.compile(r"^checkpoints/step-(\d{6,9})/")
_SHARD = re.compile(r"-epoch-\d{6,}-rank-\d{5,}\.\w+$")
_MANIFEST_SCHEMA = 2
"""1: one rank, whose files have their parts' names. 2: ranks, each with files of its own."""
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class ManifestEntry:
    """One file of a checkpoint."""

    sha256: str
    bytes: int
    rank: int | None = None
    """The rank that wrote it; None for the driver."""
    part: str = ""
    """The rank's name for it."""


@dataclass(frozen=True)
class Manifest:
    """The list that makes files a checkpoint."""

    step: int
    epoch: int
    """The lease under which it was written."""
    ranks: int
    """How many ranks wrote shards; the world size."""
    files: Mapping[str, ManifestEntry]

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The files that ranks read. In schema 1 no file names its rank: all belong to rank 0."""
        ranked = any(entry.rank is not None for entry in self.files.values())
        return tuple(
            Shard(entry.rank or 0, entry.part or name, name, entry.sha256, entry.bytes)
            for name, entry in sorted(self.files.items())
            if entry.rank is not None or not ranked
        )

    def encode(self) -> bytes:
        files = {name: {k: v for k, v in asdict(e).items() if v not in (None, "")} for name, e in self.files.items()}
        body = {"schema": _MANIFEST_SCHEMA, "step": self.step, "epoch": self.epoch, "ranks": self.ranks, "files": files}
        return json.dumps({**body, "sha256": _manifest_digest(body)}, indent=2).encode()

    @classmethod
    def parse(cls, step: int, data: bytes) -> Manifest:
        """Raises `CorruptData` if it differs from what was committed for this step; `NewerSchema`."""
        try:
            body = json.loads(data)
            digest = body.pop("sha256")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptData(f"its manifest can't be read ({error})") from error
        if digest != _manifest_digest(body) or body.get("step") != step:
            raise CorruptData("its manifest's checksum does not match its content")
        if body["schema"] > _MANIFEST_SCHEMA:
            raise NewerSchema(
                f"The checkpoint of step {step} has schema version {body['schema']}, this raypoly reads up to "
                f"{_MANIFEST_SCHEMA}: use the raypoly that wrote it or a later one."
            )
        files = {name: ManifestEntry(**entry) for name, entry in body["files"].items()}
        return cls(step, int(body["epoch"]), int(body.get("ranks", 1)), files)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose every checksum holds."""

    step: int
    manifest: Manifest = field(repr=False)
    store: Store = field(repr=False)

    @property
    def files(self) -> tuple[str, ...]:
        """Their names relative to `folder`, sorted, without the manifest."""
        return tuple(sorted(self.manifest.files))

    @property
    def reader(self) -> ShardReader:
        """Picklable: each rank of a learner reads its shards with it."""
        options = _options(self.store)
        return ShardReader(self.store.location, options, self.step, self.manifest.ranks, self.manifest.shards)

    @cached_property
    def folder(self) -> Path:
        """Its files on this machine, fetched from remote storage at first use."""
        return self.store.fetch(checkpoint_folder(self.step))

    def read(self, name: str) -> bytes:
        """One file's content."""
        return self.store.read(f"{checkpoint_folder(self.step)}{name}")


class Checkpoints:
    """One run's checkpoints. Without a lease (in a report, in an evaluation beside a live run) they are read-only."""

    def __init__(
        self, store: Store, lease: Lease | None = None, keep_last: int = 3, keep_every: int | None = None
    ) -> None:
        """Keeps the newest `keep_last`, and those of steps that `keep_every` divides."""
        if keep_last < 1:
            raise ValueError(f"at least one checkpoint must be kept, not {keep_last}")
        self._store = store
        self._lease = lease
        self._keep_last, self._keep_every = keep_last, keep_every

    def prepare(self, step: int, ranks: int = 1) -> ShardWriter | None:
        """The writer that the ranks use for a step's checkpoint; None if there is a valid one, which stays as it is.

        Removes what a dead driver left of it. Raises `StorageError`, `StaleEpoch`.
        """
        lease = self._held_lease()
        lease.check()
        if self.valid(step) is not None:
            return None
        self._discard(step)
        return ShardWriter(self._store.location, _options(self._store), step, lease.epoch, ranks)

    def commit(self, writer: ShardWriter, shards: Sequence[Shard], files: Mapping[str, bytes]) -> Checkpoint:
        """Add the driver's own files and the manifest to the shards of all ranks, then delete the oldest checkpoints.

        Raises `CorruptData` if the files do not read back as they were written; `StorageError`, `StaleEpoch`.
        """
        lease, step, ranks = self._held_lease(), writer.step, {shard.rank for shard in shards}
        if ranks != set(range(writer.ranks)):
            raise ValueError(f"step {step}: shards of all {writer.ranks} ranks are needed, not of {sorted(ranks)}")
        entries = {shard.name: ManifestEntry(shard.sha256, shard.bytes, shard.rank, shard.part) for shard in shards}
        for name, content in {**files, **_index(shards)}.items():
            if name in entries or name == MANIFEST:
                raise ValueError(f"step {step}: {name} is the name of another file of the checkpoint")
            lease.check()
            self._store.commit(f"{checkpoint_folder(step)}{name}", content)
            entries[name] = ManifestEntry(hashlib.sha256(content).hexdigest(), len(content))
        manifest = Manifest(step, lease.epoch, writer.ranks, entries)
        lease.check()
        self._store.commit(_manifest_key(step), manifest.encode())
        found = self.valid(step)
        if found is None:
            raise CorruptData(f"{self._store.place(checkpoint_folder(step))} did not come back as it was written.")
        self._delete_old()
        return found

    def newest_valid(self) -> Checkpoint | None:
        """The newest checkpoint whose every checksum holds. Damaged ones are skipped, and quarantined with a lease."""
        for step in sorted(self.steps(), reverse=True):
            found = self.valid(step)
            if found is not None:
                return found
        return None

    def steps(self) -> tuple[int, ...]:
        """The steps that have a manifest, ascending. Their content is not checked."""
        return tuple(sorted(step for step, keys in self._listed().items() if _manifest_key(step) in keys))

    def valid(self, step: int) -> Checkpoint | None:
        """A step's checkpoint; None if there is none or it is damaged. A damaged one is quarantined with a lease."""
        if not self._store.exists(_manifest_key(step)):
            return None
        try:
            return self.verified(step)
        except CorruptData as error:
            self._quarantine(step, str(error))
            return None

    def verified(self, step: int) -> Checkpoint:
        """A step's checkpoint, every byte of it checked. Raises `CorruptData`, which names the file; `StorageError`."""
        manifest = Manifest.parse(step, self._store.read(_manifest_key(step)))
        for name, entry in manifest.files.items():
            key = f"{checkpoint_folder(step)}{name}"
            try:
                found = self._store.digest(key)
            except StorageError as error:
                if self._store.exists(key):
                    raise
                raise CorruptData(f"{key} is missing") from error
            if found != (entry.sha256, entry.bytes):
                raise CorruptData(f"the checksum of {key} does not match its content")
        return Checkpoint(step, manifest, self._store)

    def _quarantine(self, step: int, reason: str) -> None:
        """Moves the manifest first: without it there is no checkpoint."""
        if self._lease is None:
            return
        self._lease.check()
        for key in _manifest_first(self._store.list(checkpoint_folder(step))):
            self._store.quarantine(key, reason)

    def _discard(self, step: int) -> None:
        """Deletes a checkpoint's files, its manifest first: half a checkpoint is none."""
        for key in _manifest_first(self._store.list(checkpoint_folder(step))):
            self._store.delete(key)

    def _delete_old(self) -> None:
        """Delete older checkpoints, and half-written ones of dead drivers. The newest was read back before."""
        listed = self._listed()
        whole = sorted(step for step, keys in listed.items() if _manifest_key(step) in keys)
        kept = set(whole[-self._keep_last :])
        kept |= {step for step in whole if self._keep_every is not None and step % self._keep_every == 0}
        for step in sorted(set(listed) - kept):
            if step < whole[-1]:
                self._discard(step)
        for key in self._shards_of_overtaken(whole[-1], listed[whole[-1]]):
            self._store.delete(key)

    def _shards_of_overtaken(self, step: int, keys: Iterable[str]) -> Iterator[str]:
        """Shards that a rank of an overtaken driver wrote into the checkpoint of a later driver."""
        manifest = Manifest.parse(step, self._store.read(_manifest_key(step)))
        names = {f"{checkpoint_folder(step)}{name}" for name in manifest.files}
        return (key for key in keys if key not in names and _SHARD.search(key))

    def _listed(self) -> dict[int, list[str]]:
        """All keys by step."""
        found: dict[int, list[str]] = {}
        for key in self._store.list(PREFIX):
            step = step_of(key)
            if step is not None:
                found.setdefault(step, []).append(key)
        return found

    def _held_lease(self) -> Lease:
        if self._lease is None:
            raise StaleEpoch(f"{self._store.uri} is open for reading only: take its lease before saving a checkpoint.")
        return self._lease


def step_of(key: str) -> int | None:
    """The step of the checkpoint that a key belongs to; None if it belongs to none."""
    match = _STEP.match(key)
    return int(match[1]) if match else None


def _manifest_key(step: int) -> str:
    return f"{checkpoint_folder(step)}{MANIFEST}"


def _manifest_first(keys: Iterable[str]) -> list[str]:
    return sorted(keys, key=lambda key: not key.endswith(f"/{MANIFEST}"))


def _options(store: Store) -> StorageOptions:
    return store.options if isinstance(store, RemoteStore) else StorageOptions()


def _index(shards: Iterable[Shard]) -> dict[str, bytes]:
    """transformers' index of the files with the weights; empty if no rank wrote any."""
    weights = [shard for shard in shards if shard.part == WEIGHTS]
    if not weights:
        return {}
    body = {
        "metadata": {"total_size": sum(shard.bytes for shard in weights)},
        "weight_map": {tensor: shard.name for shard in weights for tensor in shard.tensors},
    }
    return {_INDEX: json.dumps(body, indent=2).encode()}


def _manifest_digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
