"""The folder of a preparation. The same command finds it again.

folder = PreparationFolder.of(config)     # touches nothing
store, lease = folder.open()              # makes the folder, takes the lease, commits preparation.json
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from raypoly.core.config import Config
from raypoly.core.config_keys import dotted_values
from raypoly.core.errors import CorruptData, UsageError
from raypoly.core.gguf_models import with_sha256
from raypoly.data.preparing.prepare_config import FolderConfig, PrepareConfig
from raypoly.run.run_folder import open_leased, run_location
from raypoly.run.run_identity import (
    config_hash,
    diff_configs,
    find_foreign_entry,
    keys_without_effect,
    storage_options,
)
from raypoly.run.store import Lease, Store, open_store
from raypoly.run.store.location import Location, StorageOptions
from raypoly.run.store.sealed_files import seal, unseal

_CONFIG_KEY = "preparation.json"
_INPUTS_KEY = "inputs.json"
C = TypeVar("C", bound=FolderConfig)


@dataclass(frozen=True)
class PreparationFolder(Generic[C]):
    location: Location
    config: C

    @classmethod
    def of(cls, config: C) -> PreparationFolder[C]:
        """Raises `UsageError` if it can't be used."""
        if isinstance(config, PrepareConfig):
            config = config.model_copy(update={"model": with_sha256(config.model)})
        name = f"{config.folder_prefix}-{config.run.name}-{config_hash(config)}"
        return cls(run_location(config.run, name, _options(config)), config)

    @property
    def name(self) -> str:
        return self.location.name

    @property
    def uri(self) -> str:
        return str(self.location)

    def look(self) -> Store:
        """Open it for reading. Raises `UsageError` if it holds another preparation or none."""
        store = open_store(self.location, _options(self.config), make=False)
        _check(store, self.config)
        return store

    def open(self) -> tuple[Store, Lease]:
        """Open it for writing. Raises `LeaseHeld`, and `UsageError` if it holds something else."""
        self.look()  # before the lease: a folder of something else is not touched
        return open_leased(self.location, _options(self.config), "raypoly prepare", self._record)

    def _record(self, store: Store, _: Lease) -> None:
        _check(store, self.config)
        if not store.exists(_CONFIG_KEY):
            store.commit(_CONFIG_KEY, seal(self.config.model_dump(mode="json")))


def _options(config: FolderConfig) -> StorageOptions:
    return storage_options(Config(run=config.run))


def keep_inputs(store: Store, digests: Mapping[str, str]) -> None:
    """Record SHA-256, hex, of the files by their config names. Raises `UsageError` if one has changed since."""
    if not store.exists(_INPUTS_KEY):
        store.commit(_INPUTS_KEY, seal({"files": digests}))
    require_inputs(store, digests)


def require_inputs(store: Store, digests: Mapping[str, str]) -> None:
    """Raises `UsageError` if a file is not the one that `keep_inputs` recorded."""
    known = unseal(store.read(_INPUTS_KEY), store.place(_INPUTS_KEY))["files"]
    changed = [name for name, digest in digests.items() if known.get(name, digest) != digest]
    if changed:
        raise UsageError(
            f"The file of {changed[0]} is not the one that {store.uri} was begun with: bring the old one back, or add "
            "run.fresh=true for a new preparation."
        )


def influential(config: FolderConfig) -> dict[str, Any]:
    """Dotted keys that affect results, with their values."""
    free = keys_without_effect(type(config))
    return {key: value for key, value in dotted_values(config).items() if key not in free}


def read_first_values(store: Store, key: str, what: str) -> dict[str, Any] | None:
    """What the folder of `what`, a preparation or an evaluation, was begun with; None in a new one. Raises `UsageError`
    where it holds something else."""
    if not store.exists(key):
        if (strange := find_foreign_entry(store)) is not None:
            raise UsageError(f"run.dir={store.uri} holds {strange} and no {what}: give a new or empty folder.")
        return None
    try:
        return unseal(store.read(key), store.place(key))
    except CorruptData as error:
        raise UsageError(f"{error} Restore it, or add run.fresh=true for a new {what}.") from error


def _check(store: Store, config: FolderConfig) -> None:
    first = read_first_values(store, _CONFIG_KEY, "preparation")
    free = keys_without_effect(type(config))
    changes = [] if first is None else diff_configs(first, config)
    refused = [change for change in changes if change.key not in free and not change.key.startswith(config.later)]
    if refused:
        raise UsageError(
            f"The preparation in {store.uri} was started differently: {'; '.join(map(str, refused))}. "
            "Use the old values, another run.dir, or run.fresh=true for a new one."
        )
