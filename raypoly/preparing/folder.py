"""Where a preparation lives: a run directory of its own kind, with lease and journal; the same command finds it again.

folder = PreparationFolder.of(config)     # touches nothing
store, lease = folder.open()              # makes the folder, takes the lease, commits preparation.json
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raypoly.errors import CorruptData, StorageError, UsageError
from raypoly.preparing.config import PrepareConfig
from raypoly.rundir import Change, check_writable, flat, numbered, resumable, storage_options, taken
from raypoly.store import Lease, Store, open_store
from raypoly.store.location import Location
from raypoly.store.sealed import seal, unseal

CONFIG_KEY = "preparation.json"
INPUTS_KEY = "inputs.json"
_BEFORE_CONFIG = {"lease.lock", "lease.json", "lease"}
_FREE = resumable(PrepareConfig) | {"run.name"}
_LATER = ("band.", "split.")
"""Keys that say what is made of the samples: another start may change them, and nothing is sampled again."""


@dataclass(frozen=True)
class PreparationFolder:
    """A preparation's place."""

    location: Location
    config: PrepareConfig

    @classmethod
    def of(cls, config: PrepareConfig) -> PreparationFolder:
        """The place that the config means. Raises `UsageError` where it can't be used."""
        location, options = _location(config), storage_options(config.of_a_run())
        try:
            if config.run.fresh:
                location = next(place for place in numbered(location) if not taken(place, options))
            if location.folder is not None:
                check_writable(location.folder)
        except (StorageError, OSError) as error:
            raise UsageError(f"run.dir={location} can't be used: {error}") from error
        return cls(location, config)

    @property
    def name(self) -> str:
        return self.location.name

    @property
    def uri(self) -> str:
        return str(self.location)

    def look(self) -> Store:
        """For reading alone. Raises `UsageError` where another preparation, or none, is there."""
        store = open_store(self.location, storage_options(self.config.of_a_run()), make=False)
        _check(store, self.config)
        return store

    def open(self) -> tuple[Store, Lease]:
        """Raises `LeaseHeld` where another driver lives, `UsageError` where something else is there."""
        try:
            store = open_store(self.location, storage_options(self.config.of_a_run()))
            lease = Lease.acquire(store, "raypoly prepare")
        except StorageError as error:
            raise UsageError(f"run.dir={self.uri} can't be used: {error}") from error
        try:
            _check(store, self.config)
            if not store.exists(CONFIG_KEY):
                store.commit(CONFIG_KEY, seal(self.config.model_dump(mode="json")))
        except BaseException:
            lease.release()
            raise
        return store, lease


def keep_inputs(store: Store, digests: Mapping[str, str]) -> None:
    """Note what the sources' files hold (SHA-256, hex); at a later start, raise `UsageError` where one has changed."""
    if not store.exists(INPUTS_KEY):
        store.commit(INPUTS_KEY, seal({"files": digests}))
        return
    known = unseal(store.read(INPUTS_KEY), store.place(INPUTS_KEY))["files"]
    changed = [name for name, digest in digests.items() if known.get(name) != digest]
    if changed:
        raise UsageError(
            f"The file of {changed[0]} is not the one that {store.uri} was begun with: bring the old one back, or add "
            "run.fresh=true for a new preparation."
        )


def influential(config: PrepareConfig) -> dict[str, Any]:
    """The dotted keys that affect results, with their values."""
    return {key: value for key, value in flat(config.model_dump(mode="json")) if key not in _FREE}


def identity(config: PrepareConfig) -> str:
    """8 hex digits of SHA-256 over the keys that affect results and differ from their defaults."""
    values = config.model_dump(mode="json", exclude_defaults=True)
    kept = {key: value for key, value in flat(values) if key not in _FREE}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]


def _location(config: PrepareConfig) -> Location:
    if config.run.dir is not None:
        return Location.parse(config.run.dir)
    root = Location.parse(os.environ.get("RAYPOLY_RUNS") or "~/raypoly-runs")
    return root.child(f"prepare-{config.run.name}-{identity(config)}")


def _check(store: Store, config: PrepareConfig) -> None:
    """Raise `UsageError` where the folder holds another preparation than the config's, or no preparation."""
    if not store.exists(CONFIG_KEY):
        strange = [name for name in store.peek() if name not in _BEFORE_CONFIG]
        if strange:
            raise UsageError(f"run.dir={store.uri} holds {strange[0]} and no preparation: give a new or empty folder.")
        return
    try:
        first = unseal(store.read(CONFIG_KEY), store.place(CONFIG_KEY))
    except CorruptData as error:
        raise UsageError(f"{error} Restore it, or add run.fresh=true for a new preparation.") from error
    refused = _changes(dict(flat(first)), dict(flat(config.model_dump(mode="json"))))
    if refused:
        raise UsageError(
            f"The preparation in {store.uri} was started differently: {'; '.join(map(str, refused))}. "
            "Use the old values, another run.dir, or run.fresh=true for a new one."
        )


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    fixed = [key for key in keys if key not in _FREE and not key.startswith(_LATER)]
    return [Change(key, old.get(key), new.get(key)) for key in fixed]
