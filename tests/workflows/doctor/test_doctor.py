"""The doctor finds what is damaged, names it, changes nothing, and foretells where the next start goes on."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from raypoly import Run
from raypoly.cli import main
from raypoly.core.errors import RaypolyError, UsageError
from raypoly.core.values import Draft
from raypoly.run.run_identity import resolve_run
from raypoly.run.store import acquire_lease, open_store
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.step_records import Drafted
from tests.support import run_with_history as made
from tests.support.drafted_run import write_drafted_run
from tests.support.file_damage import KINDS
from tests.support.s3_server import s3_server
from workflows.doctor.run_check import DoctorReport, examine
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.journal import Journal

LAST = made.STEPS - made.STEPS % made.EVERY
"""The step of the newest checkpoint."""
COUNT = int(os.environ.get("RAYPOLY_CORRUPTIONS", "40"))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine")
    made.write_run_with_history(folder / "run", folder / "old")
    return folder / "run"


@pytest.fixture
def run(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine, tmp_path / "run")
    return tmp_path / "run"


def state_of(root: Path) -> dict[str, tuple[bytes, int]]:
    paths = [path for path in root.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def bad(report: DoctorReport) -> list[str]:
    """What is said of each damaged file."""
    return [f"{it.key}: {it.reason}" for it in report.findings if it.state in ("damaged", "missing")]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_sound_run_is_called_sound_and_nothing_of_it_is_touched(run: Path) -> None:
    before = state_of(run)
    report = examine(str(run))
    assert state_of(run) == before
    assert (report.damaged, report.findings) == (False, ())
    resume = report.resume
    assert (resume.checkpoint, resume.replayed, resume.step) == (LAST, made.STEPS - LAST, made.STEPS)
    assert (dict(resume.groups), resume.finished) == ({"generated": 1, "scored": 1, "judged": 1}, False)


@pytest.mark.parametrize(
    "key",
    [
        "config.json",
        "starts/epoch-000002.json",
        "summary.json",
        "judge.json",
        "metrics.jsonl",
        "index/steps-000000-000099.parquet",
        "rollouts/steps-000000-000099.parquet",
        "rollouts/step-000103.parquet",
        f"rollouts/evaluation-validation-step-{LAST:06d}.parquet",
        "evaluations/test-step-000100.parquet",
        f"checkpoints/step-{LAST:06d}/manifest.json",
        f"checkpoints/step-{LAST:06d}/model.safetensors",
        f"journal/step-{made.STEPS:06d}/00001.arrow",
    ],
)
def test_flipped_bit_is_found_in_every_kind_of_file_and_named(run: Path, key: str) -> None:
    flip(run / key)
    report = examine(str(run))
    assert report.damaged
    (said,) = bad(report)
    assert key in said


def test_damaged_checkpoint_means_the_one_before_and_more_replay(run: Path) -> None:
    flip(run / f"checkpoints/step-{LAST:06d}/model.safetensors")
    resume = examine(str(run)).resume
    assert (resume.checkpoint, resume.replayed) == (LAST - made.EVERY, made.STEPS - LAST + made.EVERY)


def test_missing_files_foreign_ones_and_half_written_ones_are_told_apart(run: Path) -> None:
    (run / "rollouts/step-000105.parquet").unlink()
    (run / f"checkpoints/step-{LAST:06d}/objective.json").unlink()
    (run / "notes.txt").write_text("mine")
    (run / "checkpoints/step-000500").mkdir()
    (run / "checkpoints/step-000500/model.safetensors").write_text("no manifest yet")
    (run / "rollouts/.step-000200.parquet.host-999999-0.part").write_text("half")
    report = examine(str(run))
    assert f"checkpoints/step-{LAST:06d}/objective.json is missing" in str(bad(report))
    assert {finding.key: finding.state for finding in report.findings} == {
        "rollouts of step 105": "missing",
        f"checkpoints/step-{LAST:06d}/manifest.json": "damaged",
        "notes.txt": "foreign",
        "checkpoints/step-000500/model.safetensors": "half-written",
        "rollouts/.step-000200.parquet.host-999999-0.part": "half-written",
    }


def test_lost_step_that_no_checkpoint_covers_is_a_refusal_that_names_it(run: Path) -> None:
    (run / f"rollouts/step-{LAST + 1:06d}.parquet").unlink()
    report = examine(str(run))
    assert f"rollouts/step-{LAST + 1:06d}.parquet" in report.resume.refused
    assert report.damaged


def test_living_driver_is_named_and_not_disturbed(run: Path) -> None:
    lease = acquire_lease(LocalStore(run), "a driver at work")
    found = examine(str(run)).lease
    assert found is not None
    assert (found.epoch, found.lives) == (lease.epoch, True)
    assert "a driver at work" in found.summary
    lease.check()
    lease.release()
    found = examine(str(run)).lease
    assert found is not None
    assert found.lives is False


@pytest.mark.parametrize("number", range(4))
def test_what_is_foretold_is_what_the_next_start_does(number: int, pristine: Path, tmp_path: Path) -> None:
    names = sorted(path.relative_to(pristine).as_posix() for path in pristine.rglob("*") if path.is_file())
    kinds = sorted({_kind(name) for name in names})
    for case in range(number, COUNT, 4):
        rng = np.random.default_rng([11, case])
        root = tmp_path / str(case)
        shutil.copytree(pristine, root)
        kind = kinds[int(rng.integers(len(kinds)))]
        first = str(rng.choice([name for name in names if _kind(name) == kind]))
        second = str(rng.choice([name for name in names if name != first]))
        damage = KINDS[int(rng.integers(len(KINDS)))]
        damage(root / first, root / second, rng)
        assert told(root) == found(root), f"{damage.__name__} on {first} and {second}"
        shutil.rmtree(root)


def _kind(name: str) -> str:
    return f"{name.partition('/')[0]}/{name.rpartition('/')[2][:4]}"


Place = tuple[int | None, int, int] | None
"""Checkpoint, step and groups kept; None where the run is refused."""


def told(root: Path) -> Place:
    try:
        resume = examine(str(root)).resume
    except UsageError:
        return None
    return None if resume.refused else (resume.checkpoint, resume.step, sum(resume.groups.values()))


def found(root: Path) -> Place:
    try:
        store, lease = resolve_run(made.config_of(root)).open("raypoly train")
    except RaypolyError:
        return None
    try:
        journal, checkpoint = Journal(store), Checkpoints(store, lease).newest_valid()
        step = journal.replayable(checkpoint.step if checkpoint else 0).stop
        return checkpoint.step if checkpoint else None, step, len(journal.step(step).groups)
    except RaypolyError:
        return None
    finally:
        lease.release()


def command(run: Path, *options: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--run", str(run), *options])
    return int(ended.value.code or 0)


def test_exit_code_says_sound_damaged_or_no_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(run) == 0
    assert f"It would go on at step {made.STEPS}" in capsys.readouterr().out
    flip(run / "rollouts/step-000103.parquet")
    assert command(run) == 1
    assert "rollouts/step-000103.parquet" in capsys.readouterr().out
    assert command(run / "rollouts") == 2
    assert "not a run folder" in capsys.readouterr().err


def test_json_holds_all_of_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(run / "rollouts/step-000103.parquet")
    assert command(run, "--json") == 1
    values = json.loads(capsys.readouterr().out)
    assert values["state"] == "damaged"
    damaged = [finding["key"] for finding in values["findings"] if finding["state"] == "damaged"]
    assert damaged == ["rollouts/step-000103.parquet"]
    assert values["resume"]["step"] == made.STEPS


def test_drafts_in_files_and_in_the_journal_are_sound_and_counted(tmp_path: Path) -> None:
    run = Run(write_drafted_run(tmp_path))
    drafts = tuple(Draft(rollout, "plan") for rollout in run.completed(0).groups[0].rollouts)
    lease = acquire_lease(run.store)
    asyncio.run(Journal(run.store).commit(Drafted(2, 1, 0, drafts)))
    lease.release()
    report = examine(run.uri)
    assert not report.damaged
    assert report.resume.step == 2
    assert dict(report.resume.groups) == {"generated": 0, "scored": 0, "judged": 0, "drafted": 1}


def test_run_on_s3_is_checked_where_it_is(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path / "cache"))
    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        uri = server.uri("mine", region="us-east-1")
        store = open_store(uri)
        for path in sorted(pristine.rglob("*")):
            key = path.relative_to(pristine).as_posix()
            if path.is_file() and not key.startswith("lease"):
                store.commit(key, path.read_bytes())
        server.requests.clear()
        report = examine(uri)
        assert not report.damaged
        assert report.resume.step == made.STEPS
        assert report.lease is not None
        assert report.lease.lives is None
        assert {request.method for request in server.requests} <= {"GET", "HEAD"}
        key = "rollouts/step-000103.parquet"
        store.put_mutable(key, store.read(key)[:-1])
        assert bad(examine(uri))[0].startswith(key)
