"""The starting model for actors on any node of a cluster.

model = ModelFiles(folder).with_copy()        # in the driver, on whose machine the folder lies
folder = model.here()                         # in an actor: the folder on the actor's node
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray

from raypoly.core.caches import cache_root
from raypoly.core.errors import UsageError
from raypoly.core.folder_cache import FolderCache

SENT_BYTES = 1 << 30
"""The largest folder that goes through the object store, in the memory of the driver's node."""


@dataclass(frozen=True)
class ModelFiles:
    """A model's folder: where it lies on the driver's machine, and how other nodes get it."""

    path: Path
    hub: str | None = None
    """The model's name on the Hugging Face hub, if the folder came from there."""
    title: str | None = None
    """What the config calls a model whose folder is in raypoly's cache."""
    sent: Any = None
    """The reference to a small folder's files by name, in the object store."""
    digest: str = ""
    """Of those files."""

    @property
    def name(self) -> str:
        """What people call the model."""
        return self.hub or self.title or self.path.name

    def with_copy(self) -> ModelFiles:
        """The same, with a copy for nodes that don't have the folder, if it is small. Needs a connected Ray."""
        files = [file for file in sorted(self.path.rglob("*")) if file.is_file()]
        if self.hub is not None or sum(file.stat().st_size for file in files) > SENT_BYTES:
            return self
        contents = {str(file.relative_to(self.path)): file.read_bytes() for file in files}
        digest = hashlib.sha256()
        for name, content in contents.items():
            digest.update(f"{len(name)} {len(content)} {name}".encode() + content)
        return replace(self, sent=ray.put(contents), digest=digest.hexdigest())

    def here(self) -> Path:
        """The folder on this node. Raises `UsageError` if it can't be had here."""
        if (self.path / "config.json").is_file():
            return self.path
        if self.hub is not None:
            return download_model(self.hub, f" on node {ray.util.get_node_ip_address()}", self.path.name)
        if self.sent is not None:
            return FolderCache(cache_root() / "models").ensure(self.digest, self._write)
        raise UsageError(
            f"The model's folder {self.path} is not on node {ray.util.get_node_ip_address()}, and with more than "
            f"{SENT_BYTES >> 30} GiB it is too large to be sent there: put it where all nodes see it at the same "
            "path, or name a model of the Hugging Face hub (model.path)."
        )

    def _write(self, folder: Path) -> None:
        files: Mapping[str, bytes] = ray.get(self.sent)
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def download_model(name: str, where: str = " here", revision: str | None = None) -> Path:
    """The folder of a model of the Hugging Face hub, downloaded unless it is in the hub's cache.

    `where`: which machine this is, for the error. Raises `UsageError` if the model can't be had.
    """
    from huggingface_hub import snapshot_download  # half a second, which a folder does not need

    try:
        return Path(snapshot_download(name, revision=revision))
    except (OSError, ValueError) as error:  # no such model, no way there, or no name of one
        raise UsageError(
            f"model.path={name} is no folder{where} and could not be had from the Hugging Face hub "
            f"({str(error).partition(chr(10))[0]}): give a folder with a model, or a model's name there."
        ) from error
