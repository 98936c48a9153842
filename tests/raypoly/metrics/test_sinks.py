"""metrics.jsonl has every step once, whatever was killed when; other sinks get the same numbers."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import numpy as np
import pytest

from raypoly.errors import StorageError
from raypoly.metrics.sinks import MetricsFile, flatten, open_sinks
from raypoly.settings import load
from tests.support.finished_run import metrics_row


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


def test_tensorboard_gets_every_number_under_its_name(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard")
    for first in (0, 1):  # the second start replays step 1 and must not show it twice
        sinks = open_sinks(load(None, ["run.tensorboard=true"]), tmp_path)
        for step in (first, first + 1):
            sinks.log(metrics_row(step))
        sinks.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("reward")] == [0, 1, 2]
    assert events.Scalars("seconds/generate")[0].value == pytest.approx(1.0)
    assert len(rows(tmp_path / "metrics.jsonl")) == 3


def test_flatten_keeps_finite_numbers_only() -> None:
    assert flatten({"step": 1, "time": "now", "x": float("inf"), "a": {"b": 2.5}}) == {"step": 1.0, "a/b": 2.5}
