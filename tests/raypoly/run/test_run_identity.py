"""The same command means the same run; another command never touches it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raypoly.analysis.run import Run
from raypoly.core.config import Config
from raypoly.core.errors import LeaseHeld, UsageError
from raypoly.run.run_identity import RunDirectory, config_hash, read_config, resolve_run, run_id
from raypoly.run.store import open_store


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAYPOLY_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def config(**sections: dict[str, Any]) -> Config:
    return Config.model_validate(sections)


def start_and_end(directory: RunDirectory) -> None:
    _, lease = directory.open("test")
    lease.release()


def test_folder_is_named_by_what_the_run_computes(runs: Path) -> None:
    path = resolve_run(config(run={"name": "puzzles"}, objective={"name": "grpo"}, train={"seed": 3})).path
    assert path.parent == runs
    assert path.name.startswith("puzzles-grpo-s3-")
    assert len(path.name.rpartition("-")[2]) == 8
    assert not runs.exists()


def test_default_is_under_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYPOLY_RUNS")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_run(config()).path.parent == tmp_path / "raypoly-runs"


def test_same_command_resumes(runs: Path) -> None:
    assert not resolve_run(config()).resumes
    start_and_end(resolve_run(config()))
    again = resolve_run(config())
    assert again.resumes
    assert again.changes == ()
    start_and_end(again)
    assert [path.name for path in runs.iterdir()] == [again.name]


def test_a_run_has_an_id_of_its_own_that_its_starts_and_its_move_keep(tmp_path: Path) -> None:
    for place in ("one", "two"):
        start_and_end(resolve_run(config(run={"dir": str(tmp_path / place / "grpo-s0")})))
    (tmp_path / "one").rename(tmp_path / "moved")
    ids = [run_id(open_store(tmp_path / place / "grpo-s0")) for place in ("moved", "two")]
    start_and_end(resolve_run(config(run={"dir": str(tmp_path / "two" / "grpo-s0")})))
    assert None not in ids
    assert ids[0] != ids[1] == run_id(open_store(tmp_path / "two" / "grpo-s0"))


@pytest.mark.parametrize(
    "sections", [{"train": {"lr": 1e-4}}, {"objective": {"set_size": 2}}, {"model": {"path": "/m"}}]
)
def test_key_that_affects_results_names_another_folder(sections: dict[str, Any]) -> None:
    assert config_hash(config(**sections)) != config_hash(config())


@pytest.mark.parametrize(
    "sections", [{"train": {"steps": 5}}, {"scorer": {"workers": 7}}, {"run": {"wandb_project": "x"}}]
)
def test_key_that_may_change_on_resume_names_the_same_folder(sections: dict[str, Any]) -> None:
    assert config_hash(config(**sections)) == config_hash(config())


def test_key_that_may_change_is_recorded(tmp_path: Path) -> None:
    run = {"dir": str(tmp_path / "mine")}
    start_and_end(resolve_run(config(run=run)))
    more = resolve_run(config(run=run, train={"steps": 100}))
    assert [str(change) for change in more.changes] == ["train.steps is 100 now and was 80"]
    start_and_end(more)
    record = json.loads((tmp_path / "mine/starts/epoch-000002.json").read_text())
    assert record["changes"] == [{"key": "train.steps", "old": 80, "new": 100}]
    assert json.loads((tmp_path / "mine/config.json").read_text())["train"]["steps"] == 80


def test_decay_keeps_the_horizon_of_the_first_start(tmp_path: Path) -> None:
    run = {"dir": str(tmp_path / "mine")}

    def resolved(**train: Any) -> RunDirectory:
        return resolve_run(config(run=run, train={"schedule": "cosine", **train}))

    start_and_end(resolved(steps=60))
    assert [resolved(steps=steps).config.train.horizon for steps in (60, 20, 100)] == [60] * 3
    start_and_end(resolved(steps=100, schedule_steps=60))
    for changed in ({"schedule_steps": 100}, {"warmup_steps": 100}, {"schedule": "linear"}):
        with pytest.raises(UsageError, match=rf"train\.{next(iter(changed))} is .* now and was"):
            resolved(**{"steps": 100, **changed})


def test_any_other_difference_is_refused_with_key_old_and_new_value(tmp_path: Path) -> None:
    run = {"dir": str(tmp_path / "mine")}
    start_and_end(resolve_run(config(run=run)))
    with pytest.raises(UsageError, match=r"train\.lr is 0\.0001 now and was 0\.0003") as refused:
        resolve_run(config(run=run, train={"lr": 1e-4}, objective={"name": "poly_epo", "set_size": 2}))
    assert "objective.set_size is 2 now and was null" in str(refused.value)
    assert "run.fresh=true" in str(refused.value)


def test_fresh_starts_beside_and_deletes_nothing(runs: Path) -> None:
    names = []
    for _ in range(3):
        directory = resolve_run(config(run={"fresh": True}))
        start_and_end(directory)
        names.append(directory.name)
    base = resolve_run(config()).name
    assert names == [base, f"{base}-2", f"{base}-3"]
    assert sorted(path.name for path in runs.iterdir()) == names


def test_fewer_steps_than_completed_are_refused(tmp_path: Path) -> None:
    run = {"dir": str(tmp_path / "mine")}
    store, lease = resolve_run(config(run=run)).open("test")
    for step in range(5):
        store.commit(f"rollouts/step-{step:06d}.parquet", b"")
    lease.release()
    with pytest.raises(UsageError, match=r"train\.steps=4, but the run in .* has completed 5 steps"):
        resolve_run(config(run=run, train={"steps": 4})).open("test")
    start_and_end(resolve_run(config(run=run, train={"steps": 5})))


def test_second_driver_is_refused(tmp_path: Path) -> None:
    directory = resolve_run(config(run={"dir": str(tmp_path / "mine")}))
    _, lease = directory.open("the first")
    with pytest.raises(LeaseHeld, match="the first"):
        directory.open("the second")
    lease.release()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=f"run.dir={tmp_path}/file/run can't be used: {tmp_path}/file is no folder"):
        resolve_run(config(run={"dir": str(tmp_path / "file" / "run")}))


def test_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"holds thesis\.tex and no run"):
        resolve_run(config(run={"dir": str(tmp_path)}))


def test_damaged_config_of_a_run_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"train": {"lr": ')
    with pytest.raises(UsageError, match=rf"{tmp_path}/config\.json can't be read"):
        resolve_run(config(run={"dir": str(tmp_path)}))


def test_config_of_a_run_is_read_back_and_a_missing_one_is_named(tmp_path: Path) -> None:
    asked = config(run={"dir": str(tmp_path / "mine")}, objective={"name": "poly_epo", "set_size": 2})
    start_and_end(resolve_run(asked))
    assert read_config(open_store(tmp_path / "mine")) == asked
    with pytest.raises(UsageError, match=rf"{tmp_path}/config\.json can't be read"):
        read_config(open_store(tmp_path))


def test_user_objective_gives_a_plain_folder_name() -> None:
    assert resolve_run(config(objective={"name": "mine.objectives:MyObjective"})).name.startswith(
        "tiny-MyObjective-s0-"
    )


def test_a_start_says_which_problems_it_trains_on_and_the_run_knows_them_all(tmp_path: Path) -> None:
    run = {"dir": str(tmp_path / "mine")}
    for problems in (None, "a" * 64, "a" * 64, "b" * 64):
        resolve_run(config(run=run)).open("test", problems)[1].release()
    assert Run(tmp_path / "mine").problem_sets == ("a" * 64, "b" * 64)
