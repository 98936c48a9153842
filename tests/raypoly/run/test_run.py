"""`raypoly.Run` reads what a run left, and says what it does not find."""

from __future__ import annotations

from pathlib import Path

import pytest

import raypoly
from raypoly.core.errors import UsageError
from raypoly.run.store.sealed_files import seal
from tests.support.finished_run import STEPS, write_finished_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_finished_run(tmp_path_factory.mktemp("runs") / "short")


def test_a_run_shows_its_config_its_numbers_and_its_rollouts(folder: Path) -> None:
    run = raypoly.Run(folder)
    assert run.config.train.steps == STEPS
    assert run.finished
    assert run.metrics().num_rows == STEPS
    assert run.metrics().column("seconds")[0].as_py()["generate"] == 1.0
    assert run.rollouts(STEPS - 1).column("status").to_pylist() == ["passed", "wrong"]
    assert [e["step"] for e in run.evaluations if e["split"] == "test"] == [0, STEPS]
    assert repr(run) == f"Run('short': poly_epo, seed 0, {STEPS} of {STEPS} steps)"
    assert "<img" in run._repr_html_()


def test_a_step_without_rollouts_is_answered_with_those_there_are(folder: Path) -> None:
    with pytest.raises(UsageError, match="no rollouts of step 99; it has: 0 to 11"):
        raypoly.Run(folder).rollouts(99)


def test_a_folder_of_runs_names_one_and_a_file_is_called_one(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"holds no config.json, but runs such as {folder}\."):
        raypoly.Run(folder.parent)
    (tmp_path / "f.txt").touch()
    with pytest.raises(UsageError, match=r"f.txt is a file, not a run folder\."):
        raypoly.Run(tmp_path / "f.txt")


def test_the_config_is_that_of_the_last_start(tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "grown")
    changes = [{"key": "train.steps", "old": STEPS, "new": 40}]
    (folder / "starts" / "epoch-000002.json").write_bytes(seal({"changes": changes}))
    run = raypoly.Run(folder)
    assert run.config.train.steps == 40
    assert not run.finished


def test_a_run_that_has_only_begun_can_be_read(tmp_path: Path) -> None:
    run = raypoly.Run(write_finished_run(tmp_path / "begun", finished=False))
    assert run.summary == {}
    assert run.evaluations == []
    assert not run.finished


def test_a_row_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "live")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 12, "rew')
    assert len(raypoly.Run(folder).rows) == STEPS
