"""metrics.jsonl has every step once, whatever was killed when; other sinks get the same numbers."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import wandb

from raypoly.core.errors import StorageError, UsageError
from raypoly.core.settings import load
from raypoly.run.sinks import MetricsFile, Sinks, flatten, open_sinks
from tests.support.board_files import Row, event_rows, offline_rows, offline_runs, points
from tests.support.finished_run import metrics_row, summary


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_replayed_steps_are_not_written_twice(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for steps in (range(1, 6), range(3, 9)):
        file = MetricsFile(path)
        for step in steps:
            file.log(metrics_row(step))
        file.close()
    assert [row["step"] for row in rows(path)] == list(range(1, 9))


@pytest.mark.parametrize("cut", [1, 40, 1000])
def test_a_line_that_a_crash_tore_is_written_again_whole(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    for step in (1, 2):
        file.log(metrics_row(step))
    file.close()
    content = path.read_bytes()
    path.write_bytes(content[: -min(cut, len(content))])
    again = MetricsFile(path)
    for step in (1, 2, 3):
        again.log(metrics_row(step))
    again.close()
    assert [row["step"] for row in rows(path)] == [1, 2, 3]
    assert path.read_bytes().startswith(content)


@pytest.mark.parametrize("damage", [b'{"step": 9}\n', b"\x00\x00\n", b'["step"]\n'])
def test_a_line_that_differs_from_what_the_journal_says_is_written_again_with_all_after_it(
    tmp_path: Path, damage: bytes
) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    for step in range(4):
        file.log(metrics_row(step))
    file.close()
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], damage, *lines[2:]]))
    again = MetricsFile(path)
    for step in range(4):
        again.log(metrics_row(step))
    again.close()
    assert path.read_bytes() == whole


def test_what_is_not_a_number_is_null_and_numpy_is_plain(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.jsonl")
    file.log(
        {"step": np.int64(1), "reward": np.float32(0.5), "loss": float("nan"), "statuses": {"passed": np.int32(3)}}
    )
    file.close()
    assert rows(tmp_path / "m.jsonl") == [{"step": 1, "reward": 0.5, "loss": None, "statuses": {"passed": 3}}]


def test_a_file_that_can_not_grow_is_a_storage_error_and_no_row_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    file.log(metrics_row(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        with pytest.raises(StorageError, match="free some space and run the same command again"):
            file.log(metrics_row(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    again = MetricsFile(path)
    again.log(metrics_row(2))
    assert [row["step"] for row in rows(path)] == [1, 2]


EVALUATIONS = {(each["step"], each["split"]): each for each in summary("grpo")["evaluations"]}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")


def log_run(folder: Path, steps: Sequence[int], key: str = "run.tensorboard=true", run_id: str | None = None) -> None:
    """One start of a run that is evaluated before every fourth step."""
    sinks = open_sinks(load(None, [key]), folder, run_id=run_id)
    for step in steps:
        for split in ("test", "validation"):
            if (step, split) in EVALUATIONS:
                sinks.log_evaluation(EVALUATIONS[step, split])
        sinks.log(metrics_row(step))
    sinks.close()


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("key", "read"), [("run.tensorboard=true", event_rows), ("run.wandb_project=mine", offline_rows)]
)
def test_tensorboard_and_wandb_get_every_number_and_evaluation_once(
    tmp_path: Path, key: str, read: Callable[[Path], Sequence[Row]]
) -> None:
    log_run(tmp_path, range(5), key)
    log_run(tmp_path, range(3, 7), key)  # replays steps 3 and 4, and the evaluation between them
    found = read(tmp_path)
    assert points(found, "reward") == [(s, pytest.approx(metrics_row(s)["reward"])) for s in range(7)]
    assert points(found, "seconds/generate")[0] == (0, 1.0)
    assert points(found, "test/pass@64") == [(0, pytest.approx(EVALUATIONS[0, "test"]["pass_at_k"]["64"]))]
    assert points(found, "validation/pass@1") == [(0, 0.25), (4, pytest.approx(0.35))]
    assert points(found, "validation/strategies_correct_judge") == [(0, pytest.approx(1.3)), (4, pytest.approx(1.4))]
    assert not any("structural" in name for row in found for name in row), "it was not measured"
    assert [row["step"] for row in rows(tmp_path / "metrics.jsonl")] == list(range(7)), "a line a step, none else"


def test_tensorboard_has_a_row_as_soon_as_it_is_logged(tmp_path: Path) -> None:
    sinks = open_sinks(load(None, ["run.tensorboard=true"]), tmp_path)
    sinks.log(metrics_row(0))
    assert [step for step, _ in points(event_rows(tmp_path), "reward")] == [0], "a kill would lose no row"
    sinks.close()


@pytest.mark.usefixtures("offline")
def test_a_run_is_one_run_of_wandb_over_its_starts_and_its_namesake_is_another(tmp_path: Path) -> None:
    ids = {"one": "6f2b", "two": "91ce"}
    for experiment in ("one", "two", "two"):
        folder = tmp_path / experiment / "grpo-s0"
        folder.mkdir(parents=True, exist_ok=True)
        log_run(folder, (0,), "run.wandb_project=mine", ids[experiment])
    told = {name: offline_runs(tmp_path / name / "grpo-s0") for name in ids}
    assert {name: [run.run_id for run in runs] for name, runs in told.items()} == {"one": ["6f2b"], "two": ["91ce"] * 2}
    assert {run.display_name for runs in told.values() for run in runs} == {"grpo-s0"}


def test_without_a_login_wandb_is_one_sentence_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    for name, value in {"MODE": "online", "SILENT": "true", "CONFIG_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    wandb.teardown()  # it keeps the settings of its first start
    with pytest.raises(
        UsageError, match=r"^run\.wandb_project=mine: W&B can't be used \(.+\): log in by `wandb login`"
    ):
        open_sinks(load(None, ["run.wandb_project=mine"]), tmp_path, run_id="6f2b")
    wandb.teardown()


def test_a_sink_that_cannot_be_closed_leaves_no_other_open() -> None:
    closed: list[str] = []

    class Closing:
        def __init__(self, name: str) -> None:
            self.name = name

        def log(self, row: object) -> None:
            raise AssertionError

        def close(self) -> None:
            closed.append(self.name)
            if self.name == "full":
                raise StorageError("no space")

    with pytest.raises(StorageError, match="no space"):
        Sinks([Closing("full"), Closing("metrics")]).close()
    assert closed == ["full", "metrics"]


def test_flatten_keeps_finite_numbers_only() -> None:
    assert flatten({"step": 1, "time": "now", "x": float("inf"), "a": {"b": 2.5}}) == {"step": 1.0, "a/b": 2.5}
