"""A checkpoint's manifest: its files, their writers and checksums, and a checksum of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from raypoly.errors import CorruptData, NewerSchema
from raypoly.store.shards import Shard

SCHEMA = 2
"""1: one rank, whose files have their parts' names. 2: ranks, each with files of its own."""
NAME = "manifest.json"


@dataclass(frozen=True)
class Entry:
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
    files: Mapping[str, Entry]

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
        body = {"schema": SCHEMA, "step": self.step, "epoch": self.epoch, "ranks": self.ranks, "files": files}
        return json.dumps({**body, "sha256": _digest(body)}, indent=2).encode()

    @classmethod
    def parse(cls, step: int, data: bytes) -> Manifest:
        """Raises `CorruptData` if it differs from what was committed for this step; `NewerSchema`."""
        try:
            body = json.loads(data)
            digest = body.pop("sha256")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptData(f"its manifest can't be read ({error})") from error
        if digest != _digest(body) or body.get("step") != step:
            raise CorruptData("its manifest's checksum does not match its content")
        if body["schema"] > SCHEMA:
            raise NewerSchema(
                f"The checkpoint of step {step} has schema version {body['schema']}, this raypoly reads up to "
                f"{SCHEMA}: use the raypoly that wrote it or a later one."
            )
        files = {name: Entry(**entry) for name, entry in body["files"].items()}
        return cls(step, int(body["epoch"]), int(body.get("ranks", 1)), files)


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
