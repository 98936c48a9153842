"""Checks a run by its own readers: is every file sound, and where would the same command go on?

report = examine("s3://bucket/runs/mine")        # works beside a live driver, and changes nothing
report.damaged; report.resume.step
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NoReturn, cast

from rich.console import Console
from rich.progress import track
from rich.text import Text

from raypoly.core.config import Config
from raypoly.core.errors import CorruptData, OtherSchema, StorageError, UsageError
from raypoly.run.plateau import has_ended
from raypoly.run.run_files import RunFiles
from raypoly.run.run_identity import read_config
from raypoly.run.sinks import METRICS
from raypoly.run.store import Store, probe_lease
from raypoly.run.store.catalogue import INDEX, Catalogue, Span, decode_segment, parse_segments
from raypoly.run.store.catalogue import PREFIX as ROLLOUTS
from raypoly.run.store.lease import LeaseState
from raypoly.run.store.local_store import LOCK_KEY, OWNER_KEY
from raypoly.run.store.rollout_files import StepsFile, read_evaluation
from raypoly.run.store.sealed_files import decode_table, unseal
from raypoly.run.store.shards import checkpoint_folder
from raypoly.run.store.step_records import StepRecords
from raypoly.run.store.store import DamagedObject
from workflows.durability.checkpoints import MANIFEST, Checkpoints, step_of
from workflows.durability.history import format_step_ranges
from workflows.durability.journal import Journal

State = Literal["damaged", "missing", "foreign", "half-written"]
BAD: tuple[State, ...] = ("damaged", "missing")
_NAMED_AT_MOST = 50
_AT_ONCE = 4
_LOOKS = 3
# Files without a checksum.
_UNCHECKED = re.compile(
    r"lease\.(?:lock|json)|lease/(?:epoch|beat)-\d+\.json|figure\.png|report\.html|metrics\.jsonl|(?:ray|actors)\.log"
    r"|(?:model|tensorboard|wandb|stacks|damaged)/.+|raypoly-error-[^/]+\.txt"
)
_JOURNAL = re.compile(r"journal/step-(\d{6,9})/\d{5,9}\.arrow")
_SEALED = re.compile(r"(?:config|summary|judge|starts/epoch-\d+|evaluations/[^/]+)\.json")
Job = tuple[str, Callable[[], object]]
"""A file's key, and a reader that raises `CorruptData` or `OtherSchema` where it can't be trusted."""


@dataclass(frozen=True)
class Finding:
    """An object that is not sound."""

    key: str
    state: State
    reason: str
    """One clause for a person."""


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
    """That step's groups by their last committed stage: `generated, scored, judged`; `drafted` before attempts."""
    of: int | None
    """Groups in a step; None if the config can't be read."""
    finished: bool
    refused: str
    """Why the command would refuse; empty if it would not."""

    @property
    def sentence(self) -> str:
        if self.refused:
            return f"It would not go on: {self.refused}"
        if self.finished:
            return f"Finished after {self.step} steps: the same command prints its results."
        start = "the starting model" if self.checkpoint is None else f"the checkpoint of step {self.checkpoint}"
        stages = ", ".join(f"{count} {stage}" for stage, count in self.groups.items() if count)
        kept = f"{sum(self.groups.values())} of its {self.of} groups kept ({stages})"
        return (
            f"It would go on at step {self.step} (steps count from 0): {start}, {self.replayed} steps replayed, "
            f"{kept if stages else 'nothing of it is committed yet'}."
        )


@dataclass(frozen=True)
class DoctorReport:
    """Everything that an examination found."""

    uri: str
    checked: int
    """Files that were compared with their checksums; a checkpoint counts as one."""
    findings: Sequence[Finding]
    lease: LeaseState | None
    resume: ResumePoint

    @property
    def damaged(self) -> bool:
        """Whether a committed object is damaged or missing, or the run can't resume."""
        return bool(self.resume.refused) or any(finding.state in BAD for finding in self.findings)


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

    def list(self, prefix: str = "") -> tuple[str, ...]:
        return tuple(key for key in self._store.list(prefix) if key not in self._gone)

    def exists(self, key: str) -> bool:
        return key not in self._gone and self._store.exists(key)

    def delete(self, key: str) -> None:
        self._gone.add(key)

    def quarantine(self, key: str, reason: str) -> None:
        self._gone.add(key)
        self.damaged.append(DamagedObject(key, key, reason))

    def _refuse(self, *_: object) -> NoReturn:
        raise StorageError(f"{self.uri} is open for reading only.")

    _create = _put = _get = _size = _keys = _names = _delete = cast(Any, _refuse)


def examine(place: str) -> DoctorReport:
    """Check every object of a run. Raises `UsageError` if there is no run; `StorageError`."""
    run = RunFiles(place)
    with suppress(CorruptData, StorageError):  # a folder of another schema: one sentence, before all of it is read
        _ = run.config
    for _ in range(_LOOKS):
        try:
            return _examine_once(run)
        except StorageError:  # a live driver replaces objects between our listing and our reading
            lease = probe_lease(run.store)
            if lease is None or lease.lives is False:
                raise
    return _examine_once(run)


def _examine_once(run: RunFiles) -> DoctorReport:
    store = run.store
    keys = store.list()
    jobs = list(_jobs(store, keys))
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="doctor") as pool:
        read = track(
            pool.map(partial(_try_reading, store), jobs),
            "files",
            len(jobs),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        findings = [*_strangers(store, keys, {key for key, _ in jobs}), *(found for found in read if found)]
    sound = {key for key, _ in jobs}.difference(finding.key for finding in findings)
    there = sound.intersection(store.list("checkpoints/"))  # a live driver may have deleted one meanwhile
    checkpoints = [step for key in there if (step := step_of(key)) is not None]
    # A start opens the journal, which deletes and quarantines. Here both are only remembered, so that what is foretold
    # is what the next start does.
    untouched = UntouchedStore(store)
    journal = Journal(untouched)
    for step in {int(match[1]) for match in map(_JOURNAL.fullmatch, keys) if match}:
        journal.step(step)  # a start reads the one step to go on with
    resume = _resume_point(run, journal, max(checkpoints, default=None))
    known = {finding.key for finding in findings}
    # What a start sets aside beside it: damaged journal objects, and steps that contradict the index.
    findings += [Finding(it.key, "damaged", it.reason) for it in untouched.damaged if it.key not in known]
    findings += [*_metrics(run, journal), *_lost_rollouts(journal.lost_steps(resume.step), known)]
    return DoctorReport(run.uri, len(jobs), tuple(findings), probe_lease(store), resume)


def _jobs(store: Store, keys: Sequence[str]) -> Iterator[Job]:
    """A reader for each file with a checksum, but for the journal's."""
    checkpoints, catalogue = Checkpoints(store), Catalogue.of(key for key in keys if key.startswith(ROLLOUTS))
    for key in keys:
        if (step := step_of(key)) is not None and key == f"{checkpoint_folder(step)}{MANIFEST}":
            yield key, partial(checkpoints.verified, step)
    singles = ((Span(step, step), key) for step, key in catalogue.singles.items())
    for span, key in (*singles, *catalogue.bundles.items()):
        yield key, lambda span=span, key=key: StepsFile.parse(store.read(key), span, key)  # type: ignore[misc]
    for (step, split), key in catalogue.evaluations.items():
        yield key, partial(read_evaluation, store, step, split)
    for span, key in parse_segments(key for key in keys if key.startswith(INDEX))[0].items():
        yield key, lambda span=span, key=key: decode_segment(span, store.read(key))  # type: ignore[misc]
    for key in keys:
        if _SEALED.fullmatch(key):
            yield key, lambda key=key: unseal(store.read(key), key)  # type: ignore[misc]
        elif re.fullmatch(r"evaluations/[^/]+\.parquet", key):
            yield key, lambda key=key: decode_table(store.read(key), key)  # type: ignore[misc]


def _try_reading(store: Store, job: Job) -> Finding | None:
    key, read = job
    try:
        read()
    except (CorruptData, OtherSchema, StorageError) as error:
        if not store.exists(key):  # a live driver removed it
            return None
        return Finding(key, "damaged", str(error.__cause__ if isinstance(error.__cause__, CorruptData) else error))
    return None


def _strangers(store: Store, keys: Sequence[str], readable: Set[str]) -> Iterator[Finding]:
    """Files that no reader opens."""
    for key in keys:
        step = step_of(key)
        if step is not None:
            if f"{checkpoint_folder(step)}{MANIFEST}" not in readable:
                yield Finding(key, "half-written", "its manifest is not there: it is being written, or was given up")
        elif key not in readable and not _UNCHECKED.fullmatch(key) and not _JOURNAL.fullmatch(key):
            yield Finding(key, "foreign", "it is no file of raypoly's")
    folder = store.location.folder
    if folder is None:  # object stores never show half an object
        return
    for path in sorted(folder.rglob(".*.part")):
        reason = "it is being written, or its writer died; the next start removes it"
        yield Finding(path.relative_to(folder).as_posix(), "half-written", reason)


def _metrics(run: RunFiles, journal: Journal) -> Iterator[Finding]:
    # metrics.jsonl has no checksum: each row is compared with the one that its step's own file holds.
    try:
        done = ((row["step"], row, journal.applied(row["step"])) for row in run.rows)
        wrong = [step for step, row, applied in done if applied and applied.metrics != row]
    except (CorruptData, KeyError, TypeError):
        yield Finding(METRICS, "damaged", "a line is no step's row; the next start writes it anew")
    else:
        if wrong:
            yield Finding(METRICS, "damaged", f"it does not say what the rollouts of step {wrong[0]} say")


def _lost_rollouts(lost: Iterable[int], reported: Iterable[str]) -> Iterator[Finding]:
    named = Catalogue.of(reported).files
    for steps in format_step_ranges(step for step in lost if step not in named):
        yield Finding(f"rollouts of step {steps}", "missing", "the rollouts are lost; the run goes on without them")


def _resume_point(run: RunFiles, journal: Journal, checkpoint: int | None) -> ResumePoint:
    """`checkpoint`: the newest sound one."""
    (config, refused), folder = _config(run), run.store.location.folder
    step = base = checkpoint or 0
    try:
        step = journal.replayable(base).stop
    except CorruptData as error:
        refused = refused or str(error)
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
    )


def _config(run: RunFiles) -> tuple[Config | None, str]:
    """That of the last start if its record is sound, else of the first start; else why it can't be read."""
    with suppress(CorruptData, StorageError, OtherSchema):
        return run.config, ""
    try:
        return read_config(run.store), ""
    except UsageError as error:
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


def print_report(place: str, as_json: bool) -> bool:
    """Examine a run, print the report, and return whether it is sound. Progress goes to stderr if it is a terminal."""
    report = examine(place)
    if as_json:
        print(json.dumps(asdict(report) | {"state": "damaged" if report.damaged else "sound"}, indent=2))
        return not report.damaged
    console = Console()
    for line in _lines(report):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    return not report.damaged


def _lines(report: DoctorReport) -> Iterator[Text | str]:
    yield report.uri
    problems = sorted(report.findings, key=lambda finding: finding.state not in BAD)
    damaged = sum(finding.state in BAD for finding in problems)
    yield f"{report.checked:,} files and checkpoints were compared with their checksums: {damaged or 'none'} damaged"
    for finding in problems[:_NAMED_AT_MOST]:
        style = "red" if finding.state in BAD else "yellow"
        yield Text.assemble((f"{finding.state:<13}", style), f"{finding.key}: {finding.reason}")
    if len(problems) > _NAMED_AT_MOST:
        yield f"... and {len(problems) - _NAMED_AT_MOST} more: --json names them all"
    lease = report.lease
    yield f"lease: {f'epoch {lease.epoch}, {lease.summary}' if lease else 'none that can be read'}"
    yield report.resume.sentence
    if lease is not None and lease.lives and not report.resume.refused:
        yield "A driver is at work in it now."
