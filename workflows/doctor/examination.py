"""Examines a run object by object."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from raypoly.analysis.run import Run
from raypoly.core.config import Config
from raypoly.core.errors import CorruptData, OtherSchema, StorageError
from raypoly.run.sinks import METRICS
from raypoly.run.store import Store
from raypoly.run.store.catalogue import Catalogue
from raypoly.run.store.local_store import LOCK_KEY, OWNER_KEY
from raypoly.run.store.open_store import probe_lease
from raypoly.run.store.shards import checkpoint_folder
from raypoly.run.store.store import DAMAGED
from workflows.doctor.checks import kind_of
from workflows.doctor.findings import DoctorReport, Finding, RunFacts
from workflows.doctor.resume import find_resume_point
from workflows.durability.checkpoints import MANIFEST, PREFIX, Manifest, step_of
from workflows.durability.damage_report import format_step_ranges

_AT_ONCE = 4
_LOOKS = 4
OnProgress = Callable[[int, int], None]
"""Called with the number of checked objects and the number of all."""


def examine(place: str, on_progress: OnProgress = lambda done, total: None) -> DoctorReport:
    """Check every object of a run. Raises `UsageError` if there is no run; `StorageError`."""
    run = Run(place)
    for _ in range(_LOOKS):
        report = _examine_once(run, on_progress)
        if not any(finding.state == "gone" and finding.area != "journal" for finding in report.findings):
            break  # else a live driver replaced listed objects, and the new ones were not seen
    return report


def _examine_once(run: Run, on_progress: OnProgress) -> DoctorReport:
    store, facts = run.store, RunFacts()
    keys = store.list()
    jobs = [*_checkpoint_jobs(store, keys, facts), *_object_jobs(store, keys, facts)]
    findings: list[Finding] = []
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="doctor") as pool:
        for done, found in enumerate(pool.map(lambda job: job(), jobs), 1):
            findings.extend(found)
            on_progress(done, len(jobs))
    blocking = _folders_for_files(store)
    findings += [*blocking, *_half_written(store), *_contradictions(facts)]
    resume = find_resume_point(
        run.uri, facts, _last_config(run, facts), blocking[0].key if blocking else "", _rows(run)
    )
    findings += _lost_rollouts(resume.step, facts, [finding.key for finding in findings if finding.state == "damaged"])
    return DoctorReport(run.uri, run.name, tuple(findings), probe_lease(store), _free(store), resume)


def _last_config(run: Run, facts: RunFacts) -> Config | None:
    """The last start's config if its file is sound, else the first start's."""
    try:
        return run.config
    except (CorruptData, StorageError, OtherSchema):
        return facts.config


def _rows(run: Run) -> Sequence[Mapping[str, Any]]:
    """The rows of metrics.jsonl; none if they can't be read."""
    try:
        return run.rows
    except (ValueError, StorageError):
        return ()


Job = Callable[[], Sequence[Finding]]


def _object_jobs(store: Store, keys: Sequence[str], facts: RunFacts) -> Iterator[Job]:
    for key in keys:
        if not key.startswith(PREFIX):
            yield lambda key=key: [_check_object(store, key, facts)]  # type: ignore[misc]


def _check_object(store: Store, key: str, facts: RunFacts) -> Finding:
    if key.startswith(DAMAGED):
        return Finding("set aside", key, "set aside", "an earlier start found it damaged")
    found = kind_of(key)
    if found is None:
        return Finding("other", key, "foreign", "it is no file of raypoly's")
    kind, match = found
    if kind.check is None:
        return Finding(kind.area, key, "unchecked")
    try:
        data = store.read(key)
    except StorageError as error:
        return _unreadable(store, kind.area, key, error)
    try:
        kind.check(facts, match, data)
    except (CorruptData, OtherSchema) as error:
        return Finding(kind.area, key, "damaged", _reason(error), len(data))
    return Finding(kind.area, key, "sound", bytes=len(data))


def _checkpoint_jobs(store: Store, keys: Sequence[str], facts: RunFacts) -> Iterator[Job]:
    folders: dict[int, list[str]] = {}
    for key in keys:
        step = step_of(key)
        if step is not None:
            folders.setdefault(step, []).append(key)
        elif key.startswith(PREFIX):
            yield lambda key=key: [Finding("checkpoints", key, "foreign", "it is in no checkpoint")]  # type: ignore[misc]
    for step, inside in folders.items():
        yield lambda step=step, inside=inside: _checkpoint(store, step, inside, facts)  # type: ignore[misc]


def _checkpoint(store: Store, step: int, keys: Sequence[str], facts: RunFacts) -> list[Finding]:
    """One checkpoint, file by file."""
    manifest_key = f"{checkpoint_folder(step)}{MANIFEST}"
    if manifest_key not in keys:
        reason = "its manifest is not there: it is being written, or was given up"
        return [Finding("checkpoints", key, "half-written", reason) for key in keys]
    try:
        data = store.read(manifest_key)
        manifest = Manifest.parse(step, data)
    except StorageError as error:
        return [_unreadable(store, "checkpoints", manifest_key, error)]
    except (CorruptData, OtherSchema) as error:
        return [Finding("checkpoints", manifest_key, "damaged", _reason(error))]
    findings = [Finding("checkpoints", manifest_key, "sound", bytes=len(data))]
    for name, entry in manifest.files.items():
        key = f"{checkpoint_folder(step)}{name}"
        try:
            fits = store.digest(key) == (entry.sha256, entry.bytes)
        except StorageError as error:
            findings.append(_unreadable(store, "checkpoints", key, error, missing=store.exists(manifest_key)))
            continue
        reason = "" if fits else "its checksum does not match its content"
        findings.append(Finding("checkpoints", key, "sound" if fits else "damaged", reason, entry.bytes))
    if all(finding.state == "sound" for finding in findings):
        facts.checkpoints.add(step)
    strangers = set(keys).difference(finding.key for finding in findings)
    return findings + [Finding("checkpoints", key, "foreign", "its manifest does not name it") for key in strangers]


def _unreadable(store: Store, area: str, key: str, error: StorageError, missing: bool = False) -> Finding:
    """An object that is listed and can't be read: a live driver removed it, or the disk fails."""
    if store.exists(key):
        return Finding(area, key, "damaged", str(error))
    return Finding(area, key, "missing" if missing else "gone", "it is not there")


def _folders_for_files(store: Store) -> list[Finding]:
    """Folders in places where a start has to write a file."""
    folder = store.location.folder
    found = [key for key in (LOCK_KEY, OWNER_KEY) if folder and (folder / key).is_dir()]
    return [Finding("lease", key, "damaged", "it is a folder and has to be a file: remove it") for key in found]


def _half_written(store: Store) -> list[Finding]:
    """Half-written files of dead writers on a local disk. Object stores never show half an object."""
    folder = store.location.folder
    found = sorted(folder.rglob(".*.part")) if folder else []
    reason = "it is being written, or its writer died; the next start removes it"
    return [Finding("other", path.relative_to(folder or path).as_posix(), "half-written", reason) for path in found]


def _contradictions(facts: RunFacts) -> list[Finding]:
    """Objects that contradict a step's own file: segments of the index, and the row in metrics.jsonl."""
    wrong = {key: step for step, (key, head) in facts.indexed.items() if facts.heads.get(step, head) != head}
    findings = [("index", key, step) for key, step in sorted(wrong.items())]
    known = {**{step: head for step, (_, head) in facts.indexed.items()}, **facts.heads}
    rows = (step for step, row in sorted(facts.rows.items()) if step in known and known[step].applied.metrics != row)
    findings += [("derived", METRICS, step) for step in islice(rows, 1)]
    return [
        Finding(area, key, "damaged", f"it does not say what the rollouts of step {step} say")
        for area, key, step in findings
    ]


def _lost_rollouts(before: int, facts: RunFacts, damaged: Sequence[str]) -> list[Finding]:
    """Steps before this one whose rollouts are neither in a sound file nor in one that is reported as damaged."""
    named = Catalogue.of(damaged).files
    lost = [step for step in range(before) if step not in facts.heads and step not in named]
    reason = "the rollouts are lost; the run goes on without them"
    return [Finding("steps", f"rollouts of step {steps}", "missing", reason) for steps in format_step_ranges(lost)]


def _reason(error: Exception) -> str:
    return str(error.__cause__ if isinstance(error.__cause__, CorruptData) else error)


def _free(store: Store) -> int:
    folder = store.location.folder or store.workspace
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(Path(there)).free
