"""Whatever a run lost to damage is told by every later start, with the reason as long as anybody knows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from raypoly.analysis.reports.run_page import write_report
from raypoly.analysis.run import Run
from raypoly.run.run_identity import resolve_run
from raypoly.run.store.sealed_files import unseal
from tests.support.run_with_history import completed_step, config_of
from workflows.durability.history import History, format_step_ranges
from workflows.durability.journal import Journal
from workflows.observers.summary import Summary


@pytest.mark.parametrize(
    ("steps", "words"), [([], []), ([3], ["3"]), ([3, 7, 8, 9], ["3", "7-9"]), ([0, 1, 4, 5], ["0-1", "4-5"])]
)
def test_steps_are_told_as_ranges(steps: list[int], words: list[str]) -> None:
    assert format_step_ranges(steps) == words


def test_losses_stand_in_summary_and_report_of_this_start_and_the_next(tmp_path: Path) -> None:
    directory = resolve_run(config_of(tmp_path / "run"))
    store, lease = directory.open("test")
    history = History(store)
    for step in range(4):
        history.add(completed_step(step))
    lease.release()
    (tmp_path / "run" / "rollouts" / "step-000001.parquet").write_bytes(b"")
    for _ in range(2):
        store, lease = directory.open("test")
        summary = Summary(store, Journal(store), directory.config)
        summary.steps = 4
        summary.write("running")
        found = unseal(store.read("summary.json"), "summary.json")
        assert [(entry["key"], entry["moved_to"]) for entry in found["damaged"]] == [
            ("rollouts/step-000001.parquet", "damaged/rollouts/step-000001.parquet")
        ]
        assert "cut short" in found["damaged"][0]["reason"]
        assert found["missing_rollouts"] == ["1"]
        lease.release()
    write_report(Run(tmp_path / "run"))
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Damaged files, set aside" in page
    assert "damaged/rollouts/step-000001.parquet" in page
