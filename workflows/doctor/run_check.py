"""Checks a run by its own readers, and prints a report.

report = examine("s3://bucket/runs/mine")        # works beside a live driver
report.damaged; report.resume.step
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from raypoly.core.errors import CorruptData, OtherSchema, StorageError
from raypoly.run.run_files import RunFiles
from raypoly.run.sinks import METRICS
from raypoly.run.store import Store
from raypoly.run.store.catalogue import INDEX, Catalogue, Span, decode_segment, parse_segments
from raypoly.run.store.catalogue import PREFIX as ROLLOUTS
from raypoly.run.store.lease import LeaseState
from raypoly.run.store.open_store import probe_lease
from raypoly.run.store.rollout_files import StepsFile, read_evaluation
from raypoly.run.store.sealed_files import decode_table, unseal
from raypoly.run.store.shards import checkpoint_folder
from raypoly.run.store.store import DAMAGED
from workflows.doctor.live_run import look_at_run
from workflows.doctor.resume import ResumePoint, UntouchedStore, find_resume_point, open_journal
from workflows.durability.checkpoints import MANIFEST, Checkpoints, step_of
from workflows.durability.damage_report import format_step_ranges
from workflows.durability.journal import Journal

State = Literal["damaged", "missing", "foreign", "half-written", "set aside", "gone"]
"""`gone`: a live driver removed it meanwhile."""
BAD: tuple[State, ...] = ("damaged", "missing")
_QUIET: tuple[State, ...] = ("gone", "set aside")
_NAMED_AT_MOST = 50
_AT_ONCE = 4
_LOOKS = 4
# Files without a checksum.
_UNCHECKED = re.compile(
    r"lease\.(?:lock|json)|lease/(?:epoch|beat)-\d+\.json|figure\.png|report\.html|metrics\.jsonl|(?:ray|actors)\.log"
    r"|(?:model|tensorboard|wandb|stacks)/.+|raypoly-error-[^/]+\.txt"
)
_JOURNAL = re.compile(r"journal/step-(\d{6,9})/\d{5,9}\.arrow")
_SEALED = re.compile(r"(?:config|summary|judge|starts/epoch-\d+|evaluations/[^/]+)\.json")
OnProgress = Callable[[int, int], None]
"""Called with the number of checked files and the number of all."""
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
class DoctorReport:
    """Everything that an examination found."""

    uri: str
    name: str
    checked: int
    """Files that were compared with their checksums; a checkpoint counts as one."""
    findings: Sequence[Finding]
    lease: LeaseState | None
    free_bytes: int
    """On the run's disk, or on the scratch folder's if the run is in remote storage."""
    resume: ResumePoint

    @property
    def damaged(self) -> bool:
        """Whether a committed object is damaged or missing, or the run can't resume."""
        return bool(self.resume.refused) or any(finding.state in BAD for finding in self.findings)


def examine(place: str, on_progress: OnProgress = lambda done, total: None) -> DoctorReport:
    """Check every object of a run. Raises `UsageError` if there is no run; `StorageError`."""
    run = RunFiles(place)
    with suppress(CorruptData, StorageError):  # a folder of another schema: one sentence, before all of it is read
        _ = run.config
    for look in range(1, _LOOKS + 1):
        # A live driver replaces objects between our listing and our reading: then look again, for the new ones.
        try:
            report = _examine_once(run, on_progress)
        except StorageError:
            lease = probe_lease(run.store)
            if look == _LOOKS or lease is None or lease.lives is False:
                raise
            continue
        if not any(finding.state == "gone" for finding in report.findings):
            break
    return report


def _examine_once(run: RunFiles, on_progress: OnProgress) -> DoctorReport:
    store = run.store
    keys = store.list()
    jobs = list(_jobs(store, keys))
    findings = list(_strangers(store, keys, {key for key, _ in jobs}))
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="doctor") as pool:
        for done, found in enumerate(pool.map(partial(_try_reading, store), jobs), 1):
            findings += [found] if found else []
            on_progress(done, len(jobs))
    sound = {key for key, _ in jobs}.difference(finding.key for finding in findings)
    checkpoints = [step for key in sound if (step := step_of(key)) is not None]
    untouched = UntouchedStore(store)
    journal = open_journal(untouched)
    for step in {int(match[1]) for match in map(_JOURNAL.fullmatch, keys) if match}:
        journal.step(step)  # a start reads the one step to go on with
    resume = find_resume_point(run, journal, max(checkpoints, default=None))
    known = {finding.key for finding in findings}
    # What a start sets aside beside it: damaged journal objects, and steps that contradict the index.
    findings += [Finding(it.key, "damaged", it.reason) for it in untouched.damaged if it.key not in known]
    findings += [*_metrics(run, journal), *_lost_rollouts(journal.lost_steps(resume.step), known)]
    return DoctorReport(run.uri, run.name, len(jobs), tuple(findings), probe_lease(store), _free(store), resume)


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
        if not store.exists(key):
            return Finding(key, "gone", "a live driver removed it")
        return Finding(key, "damaged", str(error.__cause__ if isinstance(error.__cause__, CorruptData) else error))
    return None


def _strangers(store: Store, keys: Sequence[str], readable: Set[str]) -> Iterator[Finding]:
    """Files that no reader opens."""
    for key in keys:
        step = step_of(key)
        if step is not None:
            if f"{checkpoint_folder(step)}{MANIFEST}" not in readable:
                yield Finding(key, "half-written", "its manifest is not there: it is being written, or was given up")
        elif key.startswith(DAMAGED):
            yield Finding(key, "set aside", "an earlier start found it damaged")
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


def _free(store: Store) -> int:
    folder = store.location.folder or store.workspace
    return shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free


def print_report(place: str, as_json: bool) -> bool:
    """Examine a run, print the report, and return whether it is sound. Progress goes to stderr if it is a terminal."""
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("files", total=None)
        report = examine(place, lambda done, total: progress.update(task, completed=done, total=total))
    live = None if report.lease is None or report.lease.lives is False else look_at_run(report.name, report.lease)
    if as_json:
        values = asdict(report) | {"state": "damaged" if report.damaged else "sound"}
        print(json.dumps(values | {"live": asdict(live) if live else None}, indent=2))
        return not report.damaged
    console = Console()
    for line in [*_lines(report), *(live.sentences if live else ())]:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    return not report.damaged


def _lines(report: DoctorReport) -> Iterator[Text | str]:
    yield report.uri
    problems = [finding for finding in report.findings if finding.state not in _QUIET]
    damaged = sum(finding.state in BAD for finding in problems)
    yield f"{report.checked:,} files and checkpoints were compared with their checksums: {damaged or 'none'} damaged"
    for finding in sorted(problems, key=lambda finding: finding.state not in BAD)[:_NAMED_AT_MOST]:
        style = "red" if finding.state in BAD else "yellow"
        yield Text.assemble((f"{finding.state:<13}", style), f"{finding.key}: {finding.reason}")
    if len(problems) > _NAMED_AT_MOST:
        yield f"... and {len(problems) - _NAMED_AT_MOST} more: --json names them all"
    lease = report.lease
    yield f"lease: {f'epoch {lease.epoch}, {lease.summary}' if lease else 'none that can be read'}"
    yield f"free space: {report.free_bytes / 2**30:,.1f} GiB"
    yield from report.resume.sentences
    if lease is not None and lease.lives and not report.resume.refused:
        yield "A driver is at work in it now."
