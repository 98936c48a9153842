"""However a file of a run is damaged: it resumes from what is valid, or is refused with the file's name.

CI draws 100 corruptions; `RAYPOLY_CORRUPTIONS=1000` draws as many.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from raypoly.analysis.run import Run
from raypoly.core.errors import CorruptData, RaypolyError
from raypoly.core.values import UNKNOWN
from raypoly.run.run_identity import resolve_run
from raypoly.run.sinks import MetricsFile
from raypoly.run.store import Lease, Store
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.rollout_files import read_evaluation
from tests.support import run_with_history as made
from tests.support.file_damage import KINDS, Damage
from tests.support.sample_groups import same_group, stages
from tests.support.stopping_disk import QuickDisk
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.journal import Journal
from workflows.observers.summary import Summary

COUNT = int(os.environ.get("RAYPOLY_CORRUPTIONS", "100"))


@dataclass(frozen=True)
class Case:
    """One corruption of one copy of the run."""

    root: Path
    damage: Damage | None
    touched: tuple[str, ...]
    changed: tuple[str, ...]
    """Keys whose content is other than it was, and those that are new."""

    @property
    def steps(self) -> set[int]:
        """The steps whose rollouts are looked at: those of the touched files, and some of each kind."""
        return {0, 99, 100, 119, 123}.union(int(digits) for key in self.touched for digits in re.findall(r"\d{6}", key))

    def __str__(self) -> str:
        return f"{self.damage.__name__ if self.damage else 'put_back'} on {' and '.join(self.touched)}"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("pristine")
    made.write_run_with_history(root / "run", root / "old")
    return root / "run", root / "old"


def keys(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def drawn(pristine: tuple[Path, Path], root: Path, rng: np.random.Generator) -> Case:
    """A copy of the run with one damage in it, every kind of file as likely as every other."""
    source, old = pristine
    shutil.copytree(source, root)
    names = keys(source)
    kinds = sorted({_kind(name) for name in names})

    def one() -> str:
        kind = kinds[int(rng.integers(len(kinds)))]
        return str(rng.choice([name for name in names if _kind(name) == kind]))

    first, second = one(), one()
    damage: Damage | None = None
    if rng.random() < 0.08:
        first = second = str(rng.choice(keys(old)))
        (root / first).parent.mkdir(exist_ok=True)
        shutil.copyfile(old / first, root / first)
    else:
        damage = KINDS[int(rng.integers(len(KINDS)))]
        while second == first:
            second = one()
        damage(root / first, root / second, rng)
    before = {name: (source / name).read_bytes() for name in names}
    after = {name: (root / name).read_bytes() for name in keys(root)}
    changed = tuple(name for name, data in after.items() if before.get(name) != data)
    return Case(root, damage, (first, second), changed)


def _kind(key: str) -> str:
    name = key.rpartition("/")[2]
    return f"{key.partition('/')[0]}/{name[:4]}"


@pytest.mark.parametrize("share", range(5))
def test_random_damage_never_trains_on_what_is_not_valid(
    share: int, pristine: tuple[Path, Path], tmp_path: Path
) -> None:
    resumed = 0
    for number in range(share, COUNT, 5):
        case = drawn(pristine, tmp_path / str(number), np.random.default_rng([7, number]))
        look_in(case)
        try:
            store, lease = start(case.root)
        except RaypolyError as error:
            check_refusal(case, error)
            continue
        try:
            drive(case, store, lease)
            resumed += 1
        except RaypolyError as error:
            check_refusal(case, error)
        finally:
            lease.release()
        shutil.rmtree(case.root)
    assert resumed > COUNT // 5 * 0.7


def start(root: Path) -> tuple[Store, Lease]:
    _, lease = resolve_run(made.config_of(root)).open("raypoly train")
    return LocalStore(root, QuickDisk()), lease


def check_refusal(case: Case, error: RaypolyError) -> None:
    """The message names the damaged file, or for a folder of several files the folder."""
    named = [name for key in (*case.touched, *case.changed) for name in (key, key.rpartition("/")[2])]
    assert any(name in str(error) for name in named), f"{case}: {error}"


def look_in(case: Case) -> None:
    """A notebook beside it reads what was written, or hears which file is damaged."""
    for look in (_config, _summary, _rollouts):
        try:
            look(Run(case.root), case)
        except RaypolyError as error:
            check_refusal(case, error)


def _config(run: Run, case: Case) -> None:
    assert run.config.train == made.config_of(run.directory).train


def _summary(run: Run, case: Case) -> None:
    for results in run.summary.get("evaluations", []):
        assert results == made.results_of(results["step"])


def _rollouts(run: Run, case: Case) -> None:
    for step in run.steps:
        if step in case.steps:
            rollouts = made.completed_step(step).groups[0].rollouts
            assert run.rollouts(step).column("text").to_pylist() == [rollout.text for rollout in rollouts], step


def drive(case: Case, store: Store, lease: Lease) -> None:
    """What a driver does with a run that it finds, without the learner; then one more step."""
    journal, checkpoints = Journal(store), Checkpoints(store, lease)
    checkpoint = checkpoints.newest_valid()
    base = checkpoint.step if checkpoint else 0
    if checkpoint is not None:
        assert {name: checkpoint.read(name) for name in checkpoint.files} == made.checkpoint_of(base), case
    replayed = journal.replayable(base)
    for step in replayed:
        assert made.same_step(journal.load_step(step), made.completed_step(step)), f"{case}: step {step}"
    refused = check_history(case, store, journal)
    check_rows(case, store, journal, replayed.stop)
    asyncio.run(go_on(case, journal, replayed.stop))
    again = Journal(store)
    assert made.same_step(again.load_step(replayed.stop), made.completed_step(replayed.stop)), case
    for key in case.changed:
        known = key in {damaged.key for damaged in store.damaged} or any(key in text for text in refused)
        assert known or not store.exists(key) or not _is_read(key, base), f"{case}: {key} was not noticed"


def check_history(case: Case, store: Store, journal: Journal) -> list[str]:
    """Every value is as it was written, or its file is refused; what is said of each evaluation that is."""
    refused: list[str] = []
    for step in case.steps.intersection(journal.completed_steps()):
        try:
            assert made.same_step(journal.load_step(step), made.completed_step(step)), f"{case}: step {step}"
        except CorruptData as error:
            check_refusal(case, error)
    for (step, split), results in journal.evaluations().items():
        assert results == made.results_of(step), case
        if step not in case.steps:
            continue
        try:
            assert read_evaluation(store, step, split).table.equals(made.table_of(step)), case
        except RaypolyError as error:
            check_refusal(case, error)
            refused.append(str(error))
    for step in range(made.STEPS):
        applied = journal.applied(step)
        assert applied is None or applied.metrics == made.row_of(step), f"{case}: row {step}"
        lost = [key for key in case.touched if key.startswith(("rollouts/", "index/"))]
        assert applied is not None or lost, f"{case}: row {step} is gone"
    return refused


def check_rows(case: Case, store: Store, journal: Journal, version: int) -> None:
    """The rows that a start hands to the sinks are those that were written, whatever metrics.jsonl held."""
    summary, metrics = Summary(store, journal, made.config_of(case.root)), MetricsFile(case.root / "metrics.jsonl")
    for step in range(version):
        applied = journal.applied(step)
        if applied is not None:
            summary.add(applied.metrics)
            metrics.log(applied.metrics)
    metrics.close()
    summary.write("running")
    told = Run(case.root)
    known = [row["step"] for row in told.rows if row["step"] < version]
    assert told.rows[: len(known)] == [made.row_of(step) for step in known], case
    assert len(told.summary["damaged"]) >= len(store.damaged)


async def go_on(case: Case, journal: Journal, step: int) -> None:
    """Do the unfinished step from where each group stood, and settle what is before it."""
    wanted, found = made.completed_step(step), journal.step(step)
    for slot, group in found.groups.items():
        like = wanted.groups[slot]
        verdicts = like.verdicts if group.verdicts is not None else None
        labels = like.labels if group.labels is not None else None
        assert same_group(group, like.with_findings(score=verdicts, judge=UNKNOWN if group.unjudged else labels)), case
        assert like.unjudged or not group.unjudged, case
    for record in (*(record for group in wanted.groups for record in stages(group)), wanted.applied):
        if (record.slot, record.kind) not in found.keys:
            await journal.commit(record)
    await journal.seal_step(step, wanted.groups, wanted.rewards, wanted.advantages)
    await journal.index_before(step + 1)


def _is_read(key: str, base: int) -> bool:
    """Whether a start reads it; the rest it writes anew, leaves as a person's own, or needs where this one is lost."""
    files = tuple(f"checkpoints/step-{base:06d}/{name}" for name in ("manifest.json", *made.checkpoint_of(base)))
    return key.startswith(("rollouts/", "index/", "journal/")) or key in files
