"""Real runs of conversations: the page's game, killed and resumed, and a report that a person can read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from raypoly import Run
from raypoly.analysis.reports.rollout_browser import sample_rollouts
from raypoly.integrations.contract_checks import check
from raypoly.run.run_files import RunFiles
from tests.support.local_driver import ROOT, LocalDriver, run_killed_driver
from tests.support.ray_machines import Machines


def write_game(folder: Path) -> Path:
    """The environment of docs/environments.md, and a file of numbers to guess."""
    page = (ROOT / "docs" / "environments.md").read_text()
    source = re.search(r"`guess\.py`\):\n\n```python\n(.*?)```", page, re.S)
    assert source is not None
    assert len(source[1].splitlines()) <= 15
    (folder / "guess.py").write_text(source[1])
    rows = [
        {"id": f"n{n}", "prompt": f"Guess number {n}.", "tests": {"kind": "answer", "answer": str(n % 4)}}
        for n in range(40)
    ]
    (folder / "numbers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder / "numbers.jsonl"


@pytest.mark.parametrize("how", ["ordered", "free"])
def test_the_pages_game_is_killed_and_goes_on_where_it_stood(
    machines: Machines, small_run: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    problems = write_game(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    check("guess:Guess")
    around = {"RAY_ADDRESS": machines.address, "PYTHONPATH": str(tmp_path)}
    overrides = [
        *small_run,
        *("problems.source=jsonl", f"problems.path={problems}", "environment.name=guess:Guess", "train.steps=2"),
        *("environment.max_observation_tokens=32", "environment.max_turns=3", f"generator.turns={how}"),
        *("generator.max_tokens=36", "objective.name=grpo"),
        *("evaluate.every=2", "evaluate.samples=8", "evaluate.validation_samples=2"),
    ]
    whole = LocalDriver(tmp_path / "whole", overrides, around)
    assert whole.finish() == 0, whole.log()
    if how == "ordered":
        run_killed_driver(machines, whole, tmp_path / "killed", overrides, [9], around)
    run = Run(whole.folder)
    rows = run.rollouts(0).to_pylist()
    lengths = {len(row["turns"]) for row in rows}
    assert max(lengths) > 1, "some answers were answered"
    for row in rows:
        assert len(row["own"]) == len(row["tokens"])
        assert [turn["role"] for turn in row["turns"]][::2] == ["assistant"] * ((len(row["turns"]) + 1) // 2)
        if row["outcome"] == 1.0:
            assert (row["status"], row["reward"]) == ("passed", 1.0)
    metrics = run.metrics().to_pylist()
    assert metrics[0]["turns"] > 1
    assert sum(metrics[0]["finish_reasons"].values()) == len(rows)
    sample = sample_rollouts(RunFiles(whole.folder), 200)
    shown = [row["text"] for row in sample.rows if "----- answer (user)" in row["text"]]
    assert shown
    assert "----- policy, turn 1" in shown[0]
