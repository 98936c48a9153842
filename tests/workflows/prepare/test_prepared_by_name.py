"""A data set by name through `raypoly prepare`, with `where` and `take`, to problems for training; no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raypoly.core.config import ProblemsConfig
from raypoly.data import build_problem_set
from tests.support.driver_process import ROOT
from tests.support.hub_folders import hub_folder
from tests.support.preparation_process import read_outputs

CONFIG = """
sources:
  mine: {hub: HUB, split: train, licence: MIT, where: {difficulty: [Easy, Medium]}, take: 4}
against:
  theirs: {hub: HUB, split: test}
solutions: {check: false}
sampling: off
split: {validation: 1}
"""


def prepare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "mine.yaml").write_text(CONFIG.replace("HUB", str(folder / "set")))
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    command = [sys.executable, "-m", "raypoly.cli", "prepare", "--config", str(folder / "mine.yaml"), *words]
    environment = os.environ | offline | {"RAYPOLY_CACHE": str(folder / "cache")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_a_data_set_by_name_is_chosen_from_and_loads_for_training(tmp_path: Path) -> None:
    hub_folder(tmp_path / "set")
    run = tmp_path / "run"
    ended = prepare(tmp_path, f"run.dir={run}")
    assert ended.returncode == 0, ended.stderr
    assert "12 problems of 12 rows, of which where and take choose 4" in ended.stdout

    problems = build_problem_set(ProblemsConfig(source="prepared", path=str(run)))
    kept = [problem for members in problems.splits.values() for problem in members]
    assert {name: len(members) for name, members in problems.splits.items()} == {"train": 3, "validation": 1, "test": 0}
    assert {problem.metadata["difficulty"] for problem in kept} <= {"Easy", "Medium"}
    assert all(problem.prompt and problem.tests.kind == "check" for problem in kept)

    card = json.loads((run / "card.json").read_text())
    assert card["stages"][:2] == [
        {"stage": "load", "came": 12, "dropped": 0, "went_on": 12},
        {"stage": "choose", "came": 12, "dropped": 8, "went_on": 4},
    ]
    reasons = {row["reason"]: row["problems"] for row in card["reasons"] if row["stage"] == "choose"}
    assert reasons == {
        "its difficulty does not meet where": 4,
        "its row says no difficulty, and where asks for it": 1,
        "it is not among the N that take drew": 3,
    }
    assert card["sources"]["mine"]["used"] == 4
    assert "| that `where` and `take` choose | 12 | 8 | 4 |" in (run / "card.md").read_text()
    told = prepare(tmp_path, f"run.dir={run}", "--explain", "a2").stdout
    assert "Left out at choose: its difficulty does not meet where: hard." in told

    before = read_outputs(run)
    assert prepare(tmp_path, f"run.dir={run}").returncode == 0
    assert read_outputs(run) == before
    other = prepare(tmp_path, f"run.dir={run}", "sources.mine.seed=1")
    assert (other.returncode, "sources.mine.seed is 1 now and was null" in other.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["sources.mine.split=dev"], 2, "has no split 'dev': set split to train or test."),
        (["sources.mine.hub=org/set", "sources.mine.revision=v1"], 1, "the Hugging Face hub can't be reached"),
    ],
    ids=lambda given: given[-1] if isinstance(given, list) else "",
)
def test_what_is_not_there_is_one_sentence_and_leaves_nothing_behind(
    tmp_path: Path, words: list[str], code: int, sentence: str
) -> None:
    hub_folder(tmp_path / "set")
    ended = prepare(tmp_path, f"run.dir={tmp_path / 'run'}", *words)
    assert ended.returncode == code, ended.stderr
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    assert not (tmp_path / "run").exists()
