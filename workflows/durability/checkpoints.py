"""Checkpoints: the learner's state at a step, committed whole by a manifest of checksums.

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
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from raypoly.core.errors import CorruptData, StaleEpoch, StorageError
from raypoly.run.store import Lease, Store
from raypoly.run.store.sealed_files import seal, unseal
from raypoly.run.store.shards import INDEX, WEIGHTS, ModelWriter, Shard, ShardReader, ShardWriter, checkpoint_folder

PREFIX = "checkpoints/"
_STEP = re.compile(r"^checkpoints/step-(\d{6,9})/")
_SHARD = re.compile(r"-epoch-\d{6,}-rank-\d{5,}\.\w+$")
MANIFEST = "manifest.json"
_FIELDS = ("sha256", "bytes", "rank", "part")


@dataclass(frozen=True)
class Manifest:
    step: int
    epoch: int
    """The lease under which it was written."""
    ranks: int
    files: Mapping[str, Shard]
    """By name."""

    def encode(self) -> bytes:
        files = {
            name: {key: value for key in _FIELDS if (value := getattr(file, key)) not in (None, "")}
            for name, file in self.files.items()
        }
        return seal({"step": self.step, "epoch": self.epoch, "ranks": self.ranks, "files": files})

    @classmethod
    def parse(cls, step: int, data: bytes) -> Manifest:
        """Raises `CorruptData` if it differs from what was committed for this step; `OtherSchema`."""
        key = _manifest_key(step)
        body = unseal(data, key)
        try:
            files = {name: Shard(name, **entry) for name, entry in body["files"].items()}
            found = cls(body["step"], body["epoch"], body["ranks"], files)
        except (KeyError, TypeError, AttributeError) as error:  # a sound file of another kind
            raise CorruptData(f"{key} is damaged: it is no manifest.") from error
        if found.step != step:
            raise CorruptData(f"{key} is the manifest of step {found.step}")
        return found


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose every checksum holds."""

    step: int
    manifest: Manifest = field(repr=False)
    store: Store = field(repr=False)

    @property
    def files(self) -> tuple[str, ...]:
        """Names, sorted, without the manifest."""
        return tuple(sorted(self.manifest.files))

    @property
    def reader(self) -> ShardReader:
        """Picklable: each rank of a learner reads its shards with it."""
        shards = tuple(self.manifest.files[name] for name in self.files)
        return ShardReader(self.store.location, self.store.options, self.step, self.manifest.ranks, shards)

    @cached_property
    def folder(self) -> Path:
        return self.store.fetch(checkpoint_folder(self.step))

    def read(self, name: str) -> bytes:
        return self.store.read(f"{checkpoint_folder(self.step)}{name}")


class Checkpoints:
    """One run's checkpoints; read-only without a lease."""

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
        """The ranks' writer of a step's checkpoint; None if there is a valid one, which stays.

        Removes what a dead driver left of it. Raises `StorageError`, `StaleEpoch`.
        """
        lease = self._held_lease()
        lease.check()
        if self.valid(step) is not None:
            return None
        self._discard(step)
        return ShardWriter(self._store.location, self._store.options, step, lease.epoch, ranks)

    def commit(self, writer: ShardWriter, shards: Sequence[Shard], files: Mapping[str, bytes]) -> Checkpoint:
        """Add the driver's own files and the manifest to the shards of all ranks, then delete the oldest checkpoints.

        Raises `CorruptData` if it does not read back as written; `StorageError`, `StaleEpoch`.
        """
        lease, step, ranks = self._held_lease(), writer.step, {shard.rank for shard in shards}
        if ranks != set(range(writer.ranks)):
            raise ValueError(f"step {step}: shards of all {writer.ranks} ranks are needed, not of {ranks}")
        entries = {shard.name: shard for shard in shards}
        for name, content in {**files, **_index(shards)}.items():
            if name in entries or name == MANIFEST:
                raise ValueError(f"step {step}: {name} is the name of another file of the checkpoint")
            self._store.commit(f"{checkpoint_folder(step)}{name}", content)
            entries[name] = Shard(name, hashlib.sha256(content).hexdigest(), len(content))
        manifest = Manifest(step, lease.epoch, writer.ranks, entries)
        self._store.commit(_manifest_key(step), manifest.encode())
        found = self.valid(step)
        if found is None:
            raise CorruptData(f"{self._store.place(checkpoint_folder(step))} did not come back as it was written.")
        self._delete_old()
        return found

    def model_writer(self) -> ModelWriter:
        """Rank 0's writer of the finished model. Raises `StorageError`, `StaleEpoch`."""
        lease = self._held_lease()
        lease.check()
        return ModelWriter(self._store.location, self._store.options, lease.epoch)

    def newest_valid(self) -> Checkpoint | None:
        """The newest checkpoint whose every checksum holds; damaged ones are quarantined with a lease."""
        for step in sorted(self.steps(), reverse=True):
            found = self.valid(step)
            if found is not None:
                return found
        return None

    def steps(self) -> tuple[int, ...]:
        """The steps that have a manifest, ascending. Their content is not checked."""
        return tuple(sorted(step for step, keys in self._listed().items() if _manifest_key(step) in keys))

    def valid(self, step: int) -> Checkpoint | None:
        """A step's checkpoint; None if there is none or it is damaged, and then quarantined with a lease."""
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
        if self._lease is None:
            return
        for key in _manifest_first(self._store.list(checkpoint_folder(step))):
            self._store.quarantine(key, reason)

    def _discard(self, step: int) -> None:
        for key in _manifest_first(self._store.list(checkpoint_folder(step))):
            self._store.delete(key)

    def _delete_old(self) -> None:
        # With those that dead drivers left half-written. The newest was read back before.
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
    match = _STEP.match(key)
    return int(match[1]) if match else None


def _manifest_key(step: int) -> str:
    return f"{checkpoint_folder(step)}{MANIFEST}"


def _manifest_first(keys: Iterable[str]) -> list[str]:
    # Without its manifest a checkpoint is none: a crash in the middle leaves no half that looks whole.
    return sorted(keys, key=lambda key: not key.endswith(f"/{MANIFEST}"))


def _index(shards: Iterable[Shard]) -> dict[str, bytes]:
    weights = [shard for shard in shards if shard.part == WEIGHTS]
    if not weights:
        return {}
    body = {
        "metadata": {"total_size": sum(shard.bytes for shard in weights)},
        "weight_map": {tensor: shard.name for shard in weights for tensor in shard.tensors},
    }
    return {INDEX: json.dumps(body, indent=2).encode()}
