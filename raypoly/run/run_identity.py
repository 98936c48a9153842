"""Run identity: which folder a config names, and whether the run in it may go on under this config.

    directory = resolve_run(config)                  # writes nothing
    store, lease = directory.open("raypoly train")   # makes the folder, takes the lease, commits config.json

The same command names the same folder, so it resumes. Keys marked `on_resume` may differ between the starts of a run
(`starts/` keeps their values); any other difference is refused. Nothing is ever deleted.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from raypoly.core import __version__
from raypoly.core.config import Config, Section, StagesConfig
from raypoly.core.config_keys import config_keys, dotted_values, flatten_keys
from raypoly.core.errors import CorruptData, StorageError, UsageError
from raypoly.core.gguf_models import with_judge_model, with_sha256, with_teacher
from raypoly.core.plugins import load_plugin, recipe_parts
from raypoly.run.crash import CONFIG_KEY
from raypoly.run.run_folder import explain_unusable, open_leased, run_location
from raypoly.run.store import Lease, Store, open_store
from raypoly.run.store.catalogue import completed_steps
from raypoly.run.store.location import Location, StorageOptions
from raypoly.run.store.sealed_files import seal, unseal
from raypoly.run.store.shards import RunWitness

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
    """The folder of a run under a config."""

    location: Location
    config: Config
    """As given, with the decay's horizon and the hashes of a model in a GGUF file and of what stages read filled in."""
    resumes: bool
    changes: tuple[Change, ...]
    """The allowed differences from its first start."""

    @property
    def name(self) -> str:
        return self.location.name

    @property
    def uri(self) -> str:
        return str(self.location)

    @property
    def path(self) -> Path:
        """The run's folder on this machine; for a run in remote storage, its workspace in the scratch."""
        return self.location.folder or storage_options(self.config).workspace(self.location)

    def open(self, description: str = "raypoly", problems: str | None = None) -> tuple[Store, Lease]:
        """Make the folder, take its lease, and commit `config.json` at the first start.

        `problems`: content hash of this start's problem set, for its record. Raises `LeaseHeld`, `UsageError`.
        """
        record = partial(self._record_start, problems=problems)
        return open_leased(self.location, storage_options(self.config), description, record)

    def witness(self, store: Store, lease: Lease) -> RunWitness:
        """This start's record, by which another machine tells whether it sees the run."""
        key = _start_key(lease)
        return RunWitness(store.location, store.options, key, store.read(key))

    def _record_start(self, store: Store, lease: Lease, problems: str | None) -> None:
        # Compared again, now that nobody else can write.
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
        start["token"] = uuid.uuid4().hex  # no other folder holds this record
        if problems is not None:
            start["problems"] = problems
        if not store.list(STARTS):  # no result depends on it
            start["id"] = uuid.uuid4().hex
        key = _start_key(lease)
        if store.exists(key):
            store.quarantine(key, "this start was recorded before it began")
        store.commit(key, seal(start))


def _start_key(lease: Lease) -> str:
    return f"{STARTS}{lease.epoch:06d}.json"


def resolve_run(config: Config) -> RunDirectory:
    """The run directory of a config. Writes nothing.

    Raises `UsageError` if the place can't be used, or holds something else or a run with other values of its keys.
    """
    config = config.model_copy(
        update={
            "model": with_sha256(config.model),
            "stages": _identified(config.stages, config.objective.name),
            "distill": with_teacher(config.distill),
            "judge": with_judge_model(config.judge),
        }
    )
    objective = config.objective.name.rpartition(":")[2].replace("/", "-")
    options = storage_options(config)
    location = run_location(
        config.run, f"{config.run.name}-{objective}-s{config.train.seed}-{config_hash(config)}", options
    )
    with explain_unusable(location):
        store = open_store(location, options, make=False)
        config = _with_first(config, _first_config(store) or config)
        return RunDirectory(location, config, store.exists(CONFIG_KEY), _checked_changes(store, config))


def _identified(stages: StagesConfig, objective: str) -> StagesConfig:
    if not stages.parameters:
        return stages
    # raypoly's own objectives, in a room above this one, bring no stages
    brings = ":" in objective or objective in recipe_parts("objective.name")
    brought = getattr(load_plugin(objective, {}, "objective.name"), "stages", ()) if brings else ()
    kinds: dict[str, Any] = {}
    for place in (*stages.own, *brought):
        kind = load_plugin(place, {}, "stages.own")
        kinds.setdefault(kind.name, kind)  # one that is given takes the place of a brought one
    keys = {name: it.identify(stages.parameters[name]) for name, it in kinds.items() if name in stages.parameters}
    return stages.model_copy(update=keys)


def _with_first(config: Config, first: Config) -> Config:
    # By default the horizon is that of the run's first start, and a model that is not here any more the first one.
    for name, model in (("distill", "teacher"), ("judge", "model")):
        own, firsts = getattr(config, name), getattr(first, name)
        if own.sha256 is None and getattr(own, model) == getattr(firsts, model):
            config = config.model_copy(update={name: own.model_copy(update={"sha256": firsts.sha256})})
    if config.train.schedule == "constant" or config.train.schedule_steps is not None:
        return config
    return config.model_copy(
        update={"train": config.train.model_copy(update={"schedule_steps": first.train.horizon or None})}
    )


def storage_options(config: Config) -> StorageOptions:
    run = config.run
    scratch = None if run.scratch is None else Path(run.scratch).expanduser().absolute()
    return StorageOptions(run.storage_timeout, run.storage_patience, scratch)


def read_config(store: Store) -> Config:
    """The config of a run's first start. Raises `UsageError` if there is no run or its config is damaged."""
    place = store.place(CONFIG_KEY)
    try:
        return parse_config(unseal_config(store.read(CONFIG_KEY), place), place)
    except (StorageError, CorruptData) as error:
        reason = " ".join(str(error).split())[:300]
        raise UsageError(f"{place} can't be read ({reason}) Restore it, or name another run.") from error


def problem_sets(store: Store) -> tuple[str, ...]:
    """Content hashes of the problem sets of a run's starts, each once."""
    return _said_at_starts(store, "problems")


def versions(store: Store) -> tuple[str, ...]:
    return _said_at_starts(store, "version")


def run_id(store: Store) -> str | None:
    """What tells the run from all others, wherever its folder is; None if the record of its first start is lost."""
    return next(iter(_said_at_starts(store, "id")), None)


def _said_at_starts(store: Store, name: str) -> tuple[str, ...]:
    said = (unseal(store.read(key), store.place(key)).get(name) for key in store.list(STARTS))
    return tuple(dict.fromkeys(value for value in said if value is not None))


def unseal_config(data: bytes, what: str) -> dict[str, Any]:
    """The values of a run's `config.json`. Raises as `unseal`, and `UsageError` for a model's."""
    with suppress(ValueError):
        if is_model_config(json.loads(data)):
            raise UsageError(f"{what} is a model's: its folder is no run. `raypoly evaluate --model` takes it.")
    return unseal(data, what)


def parse_config(values: Mapping[str, Any], what: str) -> Config:
    """A run's config from its file's values. Raises `CorruptData`."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        unknown = [".".join(map(str, e["loc"])) for e in error.errors() if e["type"] == "extra_forbidden"]
        reason = f"raypoly {__version__} does not know its {', '.join(unknown)}" if unknown else str(error)
        raise CorruptData(f"{what} is another version's or damaged: {' '.join(reason.split())[:300]}.") from error


def is_model_config(values: Any) -> bool:
    """Whether the values of a `config.json` are those of a Hugging Face model."""
    return isinstance(values, Mapping) and ("model_type" in values or "architectures" in values)


def config_hash(config: Section) -> str:
    """8 hex digits of SHA-256 over the keys that affect results and differ from their defaults."""
    values = config.model_dump(mode="json", exclude_defaults=True)
    free = keys_without_effect(type(config))
    kept = {key: value for key, value in flatten_keys(values) if key not in free}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]


def _checked_changes(store: Store, config: Config) -> tuple[Change, ...]:
    first = _first_config(store)
    if first is None:
        return ()
    changes = diff_configs(first.model_dump(mode="json"), config)
    free = keys_without_effect(Config)
    refused = [change for change in changes if change.key not in free]
    if refused:
        raise UsageError(
            f"The run in {store.uri} was started differently: {'; '.join(map(str, refused))}. "
            "Use the old values, another run.dir, or run.fresh=true for a new run."
        )
    return changes


def _first_config(store: Store) -> Config | None:
    """The config of the first start; None if the folder is new. Raises `UsageError` if it holds something else."""
    if store.exists(CONFIG_KEY):
        return read_config(store)
    strange = find_foreign_entry(store)
    if strange is not None:
        raise UsageError(
            f"run.dir={store.uri} holds {strange} and no run: give a new or an empty folder, "
            f"or restore {CONFIG_KEY} if it is a run that lost it."
        )
    return None


def find_foreign_entry(store: Store) -> str | None:
    """An entry that no unrecorded start of a run made; None if there is none."""
    return next((name for name in store.peek() if name not in _OURS_BEFORE_CONFIG), None)


def diff_configs(old: Mapping[str, Any], new: Section) -> tuple[Change, ...]:
    """The differences between `old` (a config's JSON values) and `new`, in alphabetical order."""
    before, after = dict(flatten_keys(old)), dotted_values(new)
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return tuple(Change(key, before.get(key), after.get(key)) for key in keys)


def keys_without_effect(section: type[Section]) -> frozenset[str]:
    """The dotted keys that do not affect results."""
    return resumable_keys(section) | _NOT_IDENTITY


def resumable_keys(section: type[Section]) -> frozenset[str]:
    """The dotted keys that carry `on_resume`."""
    return frozenset(key.name for key in config_keys(section) if key.on_resume)
