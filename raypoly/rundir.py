"""Run identity: which folder a config means, and whether the run in it may go on under this config.

    directory = resolve(config)                      # touches nothing
    store, lease = directory.open("raypoly train")   # makes the folder, takes the lease, commits config.json

The same command names the same folder, so it resumes. Keys marked `on_resume` in `raypoly.config` may differ between
the starts of a run, and each start's are kept in `starts/`; any other difference is refused. `train.steps` may grow;
fewer steps than the run has completed are refused. Nothing is ever deleted.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from raypoly import __version__
from raypoly.config import Config, Section
from raypoly.errors import CorruptData, StorageError, UsageError
from raypoly.store import Lease, Store, open_store
from raypoly.store.catalogue import completed_steps
from raypoly.store.location import Location
from raypoly.store.options import StorageOptions
from raypoly.store.sealed import seal, unseal

CONFIG_KEY = "config.json"
STARTS = "starts/epoch-"
_OURS_BEFORE_CONFIG = {"lease.lock", "lease.json", "lease"}
_NOT_IDENTITY = {"run.name"}


@dataclass(frozen=True)
class Change:
    """One key whose value differs from the run's first start."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key} is {json.dumps(self.new)} now and was {json.dumps(self.old)}"


@dataclass(frozen=True)
class RunDirectory:
    """Where a run lives."""

    location: Location
    config: Config
    resumes: bool
    """Whether a run is there already."""
    changes: tuple[Change, ...]
    """What differs from its first start, all of it allowed."""

    @property
    def name(self) -> str:
        return self.location.name

    @property
    def uri(self) -> str:
        """The folder's absolute path, or the URI: what another command is given."""
        return str(self.location)

    @property
    def path(self) -> Path:
        """The folder on this machine that is the run's, or works for it where the run lives in remote storage."""
        return self.location.folder or storage_options(self.config).workspace(self.location)

    def open(self, description: str = "raypoly", problems: str | None = None) -> tuple[Store, Lease]:
        """Make the folder, take its lease, and commit `config.json` at the first start.

        `problems` is the content hash of the problem set that this start trains on, kept with the start.
        Raises `LeaseHeld` where another driver lives, `UsageError` where the folder can't be written or the run that
        is there can't go on under this config.
        """
        try:
            store = open_store(self.location, storage_options(self.config))
            lease = Lease.acquire(store, description)
        except StorageError as error:
            raise UsageError(f"run.dir={self.uri} can't be used: {error}") from error
        try:
            self._record_start(store, lease, problems)
        except BaseException:
            lease.release()
            raise
        return store, lease

    def _record_start(self, store: Store, lease: Lease, problems: str | None) -> None:
        """Compare again, now that nobody else can write, and keep what this start was asked to do."""
        changes = _checked_changes(store, self.config)
        if not store.exists(CONFIG_KEY):
            store.commit(CONFIG_KEY, seal(self.config.model_dump(mode="json")))
        done = max(completed_steps(store), default=-1) + 1
        if self.config.train.steps < done:
            raise UsageError(
                f"train.steps={self.config.train.steps}, but the run in {self.uri} has completed {done} steps: "
                f"ask for {done} or more, or add run.fresh=true for a new run."
            )
        start: dict[str, Any] = {"version": __version__, "completed": done, "changes": [vars(c) for c in changes]}
        if problems is not None:
            start["problems"] = problems
        key = f"{STARTS}{lease.epoch:06d}.json"
        if store.exists(key):
            store.set_aside(key, "it tells of a start that has only now come")
        store.commit(key, seal(start))


def resolve(config: Config) -> RunDirectory:
    """The run directory that a config means. Reads, and touches nothing.

    Raises `UsageError` for a place that can't be used or holds something else than a run, and for keys that
    differ from the run's first start and may not.
    """
    location = _location(config)
    options = storage_options(config)
    try:
        if config.run.fresh:
            location = next(place for place in numbered(location) if not taken(place, options))
        if location.folder is not None:
            check_writable(location.folder)
        store = open_store(location, options, make=False)
        return RunDirectory(location, config, store.exists(CONFIG_KEY), _checked_changes(store, config))
    except StorageError as error:
        raise UsageError(f"run.dir={location} can't be used: {error}") from error
    except OSError as error:
        raise UsageError(f"run.dir={location} can't be used ({error.strerror}); give another run.dir.") from error


def storage_options(config: Config) -> StorageOptions:
    """How the config wants remote storage treated."""
    run = config.run
    scratch = None if run.scratch is None else Path(run.scratch).expanduser().absolute()
    return StorageOptions(run.storage_timeout, run.storage_patience, scratch)


def read_config(store: Store) -> Config:
    """What a run was first started with. Raises `UsageError` where there is no run, or a damaged one."""
    place = store.place(CONFIG_KEY)
    try:
        return parse_config(unseal(store.read(CONFIG_KEY), place), place)
    except (StorageError, CorruptData) as error:
        reason = " ".join(str(error).split())[:300]
        raise UsageError(f"{place} can't be read ({reason}) Restore it, or name another run.") from error


def problem_sets(store: Store) -> tuple[str, ...]:
    """Content hashes of the problem sets of a run's starts, each once; empty where none of them said."""
    said = (unseal(store.read(key), store.place(key)).get("problems") for key in store.list(STARTS))
    return tuple(dict.fromkeys(name for name in said if name is not None))


def parse_config(values: Mapping[str, Any], what: str) -> Config:
    """A run's config from its file's values; keys that came later have their defaults. Raises `CorruptData`."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        unknown = [".".join(map(str, e["loc"])) for e in error.errors() if e["type"] == "extra_forbidden"]
        reason = f"raypoly {__version__} does not know its {', '.join(unknown)}" if unknown else str(error)
        raise CorruptData(f"{what} is another version's or damaged: {' '.join(reason.split())[:300]}.") from error


def identity(config: Config) -> str:
    """8 hex digits of SHA-256 over the keys that affect results and differ from their defaults.

    A key that a later version adds leaves the names of earlier runs as they are.
    """
    values = config.model_dump(mode="json", exclude_defaults=True)
    free = resumable(Config) | _NOT_IDENTITY
    kept = {key: value for key, value in flat(values) if key not in free}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]


def _location(config: Config) -> Location:
    if config.run.dir is not None:
        return Location.parse(config.run.dir)
    objective = config.objective.name.rpartition(":")[2].replace("/", "-")
    name = f"{config.run.name}-{objective}-s{config.train.seed}-{identity(config)}"
    return Location.parse(os.environ.get("RAYPOLY_RUNS") or "~/raypoly-runs").child(name)


def numbered(location: Location) -> Iterator[Location]:
    """The place, then the same with -2, -3 ..."""
    yield location
    yield from (location.sibling(f"{location.name}-{number}") for number in itertools.count(2))


def taken(location: Location, options: StorageOptions) -> bool:
    """Whether anything is there."""
    if location.folder is not None and location.folder.exists() and not location.folder.is_dir():
        return True
    return bool(open_store(location, options, make=False).peek())


def check_writable(path: Path) -> None:
    """Before anything starts: the folder, or the nearest one above it that exists, takes files."""
    above = next(folder for folder in (path, *path.parents) if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        reason = "is no folder" if not above.is_dir() else "is not writable"
        raise UsageError(f"run.dir={path} can't be used: {above} {reason}; give another run.dir or set $RAYPOLY_RUNS.")


def _checked_changes(store: Store, config: Config) -> tuple[Change, ...]:
    """What differs from the first start; nothing where there was none. Raises `UsageError` for what may not differ."""
    first = _first_config(store)
    if first is None:
        return ()
    old, new = (dict(flat(c.model_dump(mode="json"))) for c in (first, config))
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    changes = tuple(Change(key, old.get(key), new.get(key)) for key in keys)
    free = resumable(Config) | _NOT_IDENTITY
    refused = [change for change in changes if change.key not in free]
    if refused:
        raise UsageError(
            f"The run in {store.uri} was started differently: {'; '.join(map(str, refused))}. "
            "Use the old values, another run.dir, or run.fresh=true for a new run."
        )
    return changes


def _first_config(store: Store) -> Config | None:
    """What the run in a folder was started with; None where the folder is new."""
    if store.exists(CONFIG_KEY):
        return read_config(store)
    strange = [name for name in store.peek() if name not in _OURS_BEFORE_CONFIG]
    if strange:
        raise UsageError(
            f"run.dir={store.uri} holds {strange[0]} and no run: give a new or an empty folder, "
            f"or bring {CONFIG_KEY} back where it is a run that lost it."
        )
    return None


def resumable(section: type[Section], prefix: str = "") -> frozenset[str]:
    """The dotted keys that carry `on_resume`."""
    keys: set[str] = set()
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            keys |= resumable(field.annotation, f"{prefix}{name}.")
        elif isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("on_resume"):
            keys.add(f"{prefix}{name}")
    return frozenset(keys)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values, of sections within sections."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
