"""Where the same command would resume a run, found by the readers that a start uses.

A start opens the journal, which deletes and quarantines. Here it is opened on `UntouchedStore`, where both are only
remembered. So what the doctor foretells is what the next start does.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

from raypoly.core.config import Config
from raypoly.core.config_keys import dotted_values
from raypoly.core.errors import CorruptData, OtherSchema, StorageError
from raypoly.core.settings import load
from raypoly.run.plateau import has_ended
from raypoly.run.run_files import RunFiles
from raypoly.run.run_identity import CONFIG_KEY, parse_config, unseal_config
from raypoly.run.store import Lease, Store
from raypoly.run.store.local_store import LOCK_KEY, OWNER_KEY
from raypoly.run.store.step_records import StepRecords
from raypoly.run.store.store import DamagedObject
from workflows.durability.journal import Journal

_ONE_START = ("run.dir", "run.fresh")


class UntouchedStore(Store):
    """A run as a start would leave it. Deletions and quarantines take effect here alone; nothing can be written."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.location, store.workspace, store.options)
        self._store = store
        self._gone: set[str] = set()

    def read(self, key: str) -> bytes:
        if key in self._gone:
            raise StorageError(f"{self.place(key)} was set aside.")
        return self._store.read(key)

    def digest(self, key: str) -> tuple[str, int]:
        return self._store.digest(key)

    def list(self, prefix: str = "") -> tuple[str, ...]:
        return tuple(key for key in self._store.list(prefix) if key not in self._gone)

    def peek(self) -> tuple[str, ...]:
        return self._store.peek()

    def exists(self, key: str) -> bool:
        return key not in self._gone and self._store.exists(key)

    def fetch(self, key: str) -> Path:
        return self._store.fetch(key)

    def delete(self, key: str) -> None:
        self._gone.add(key)

    def quarantine(self, key: str, reason: str) -> None:
        self._gone.add(key)
        self.damaged.append(DamagedObject(key, key, reason))

    def _refuse(self, *_: object) -> NoReturn:
        raise StorageError(f"{self.uri} is open for reading only.")

    _create = _put = _get = _size = _keys = _names = _delete = clean = cast(Any, _refuse)


class _NoLease(Lease):
    """Stands for the lease of the next start: nobody else's writes matter to a store that is never written."""

    epoch = 0

    def check(self) -> None: ...

    def release(self) -> None: ...


def open_journal(store: UntouchedStore) -> Journal:
    """The journal as the next start opens it."""
    return Journal(store, _NoLease())


@dataclass(frozen=True)
class ResumePoint:
    """Where the same command would resume the run."""

    checkpoint: int | None
    """Step of the checkpoint; None for the starting model."""
    replayed: int
    """Completed steps that the learner replays."""
    step: int
    """The step to go on with."""
    groups: Mapping[str, int]
    """Groups of that step by their last committed stage: `generated, scored, judged`, and `drafted` if some have drafts
    and no attempts yet."""
    of: int | None
    """Groups in a step; None if the config can't be read."""
    finished: bool
    refused: str
    """Why the command would refuse; empty if it would not."""
    command: str

    @property
    def sentences(self) -> Iterator[str]:
        """It for a person."""
        if self.refused:
            yield f"It would not go on: {self.refused}"
            return
        start = "the starting model" if self.checkpoint is None else f"the checkpoint of step {self.checkpoint}"
        if self.finished:
            yield f"Finished after {self.step} steps: the same command prints its results."
        else:
            groups = sum(self.groups.values())
            stages = ", ".join(f"{count} {stage}" for stage, count in self.groups.items() if count)
            kept = f"{groups} of its {self.of} groups kept ({stages})" if groups else "nothing of it is committed yet"
            yield (
                f"It would go on at step {self.step} (steps count from 0): {start}, "
                f"{self.replayed} steps replayed, {kept}."
            )
        yield f"Command: the one that started it, or {self.command}"


def find_resume_point(run: RunFiles, journal: Journal, checkpoint: int | None) -> ResumePoint:
    """`checkpoint`: the newest sound one."""
    (config, unread), folder, refused = _config(run), run.store.location.folder, ""
    step = base = checkpoint or 0
    try:
        step = journal.replayable(base).stop
    except CorruptData as error:
        refused = str(error)
    if config is None:
        refused = f"{unread} Bring the file back (from a backup, or another copy), or start anew with run.fresh=true."
    for key in (LOCK_KEY, OWNER_KEY):
        if folder is not None and (folder / key).is_dir():
            refused = f"{key} is a folder and has to be a file: remove it."
    found = journal.step(step)
    return ResumePoint(
        checkpoint=checkpoint,
        replayed=step - base,
        step=step,
        groups=_stages(found),
        of=max(config.train.prompts_per_step, len(found.groups)) if config else None,
        finished=config is not None and has_ended(config, step, lambda: _rows(run)),
        refused=refused,
        command=_command(run.uri, config) if config else "",
    )


def _config(run: RunFiles) -> tuple[Config | None, str]:
    """That of the last start if its file is sound, else of the first start; else why it can't be read."""
    with suppress(CorruptData, StorageError, OtherSchema):
        return run.config, ""
    try:
        return parse_config(unseal_config(run.store.read(CONFIG_KEY), CONFIG_KEY), CONFIG_KEY), ""
    except (CorruptData, StorageError, OtherSchema) as error:
        return None, str(error)


def _rows(run: RunFiles) -> list[dict[str, Any]]:
    try:
        return run.rows
    except (CorruptData, StorageError):
        return []


def _stages(found: StepRecords) -> Mapping[str, int]:
    counts = Counter({"generated": 0, "scored": 0, "judged": 0})
    for group in found.groups.values():
        judged = group.labels is not None or group.unjudged
        counts["judged" if judged else "generated" if group.verdicts is None else "scored"] += 1
    if drafted := len(found.drafts.keys() - found.groups.keys()):
        counts["drafted"] = drafted
    return dict(counts)


def _command(uri: str, config: Config) -> str:
    """A command that means this run without its config file."""
    overrides = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in _changed(config))
    return shlex.join(["python", "-m", "raypoly.train", f"run.dir={uri}", *overrides])


def _changed(config: Config) -> Iterator[tuple[str, Any]]:
    """Keys with values other than those of the embedded default."""
    chosen = {"objective.name": config.objective.name, "loss.name": config.loss.name}
    plain = dotted_values(load(None, (), lambda text: None))
    # Another objective brings its own parameters, so keys are compared with the default of that objective and loss.
    named = [f"{key}={name}" for key, name in chosen.items() if plain[key] != name]
    default = dotted_values(load(None, named, lambda text: None))
    for key, value in dotted_values(config).items():
        if key not in _ONE_START and (plain if key in chosen else default).get(key, ...) != value:
            yield key, value
