"""A preparation by real actors, killed in its middle: the same command goes on, and ends with the same bytes."""

from __future__ import annotations

import gc
import gzip
import json
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import ray

from raypoly.core.config import ProblemsConfig
from raypoly.core.errors import UsageError
from raypoly.data import build_problem_set
from raypoly.data.formats import read_problems, row_of
from raypoly.data.preparing import PrepareConfig
from raypoly.data.preparing.decision_log import explain_problem
from raypoly.data.preparing.preparation_folder import PreparationFolder
from raypoly.data.preparing.prepare_config import SourceConfig
from raypoly.data.preparing.sources import SourceFile
from tests.support.preparation_process import ROOT, PreparationDriver, changed_outputs, read_outputs
from tests.support.preparation_rows import problem_row, write_rows
from tests.support.ray_machines import Machines
from tests.support.small_problems import SHARED
from workflows.prepare import large_files, prepare
from workflows.startup.ray_cluster import local_ray

RIGHT = {
    "id": "doubled",
    "prompt": "Write f that gives twice the number that it is called with, whatever the number may be.",
    "entry_point": "f",
    "tests": {"kind": "calls", "cases": [{"args": [4], "expected": 8}]},
    "solution": "def f(x):\n    return x + x\n",
}
WRONG = {
    **RIGHT,
    "id": "halved",
    "prompt": "Write f that gives one half of the even number that it is called with.",
    "solution": "def f(x):\n    return x\n",
}
CONFIG = """
sources:
  mine: {path: FILE, licence: MIT, revision: first}
sampling: {samples: 4, chunk: 4}
band: {low: 0, high: 3}
split: {validation: 3}
generator: {engine: transformers}
scorer: {workers: 1}
ray: {dashboard: false}
"""


@pytest.fixture
def config(tmp_path: Path, warm_model: Path) -> Path:
    """18 puzzles, which the model solves sometimes, and two problems with solutions."""
    puzzles = build_problem_set(ProblemsConfig()).splits["train"][:18]
    rows = [*map(row_of, puzzles), RIGHT, WRONG]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    file = tmp_path / "mine.yaml"
    file.write_text(CONFIG.replace("FILE", str(tmp_path / "rows.jsonl")) + f"model: {{path: {warm_model}}}\n")
    return file


@pytest.fixture
def starts(config: Path, tmp_path: Path, machines: Machines) -> tuple[PreparationDriver, PreparationDriver]:
    def start(name: str) -> PreparationDriver:
        return PreparationDriver(tmp_path / name, [], config, {"RAY_ADDRESS": machines.address})

    return start("whole"), start("killed")


def test_a_test_set_is_prepared_without_ray_and_keeps_nothing_of_the_training_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = write_rows(tmp_path / "ours.jsonl", [problem_row(f"p{number}", number) for number in range(8)])
    theirs = write_rows(tmp_path / "theirs.jsonl", [problem_row("p-three", 3), problem_row("other", 9)])
    words = {
        "sources": {"ours": {"path": str(ours)}},
        "against": {"theirs": {"path": str(theirs)}},
        "solutions": {"check": False},
        "sampling": "off",
        "split": {"rest": "test"},
        "run": {"dir": str(tmp_path / "run")},
    }
    config = PrepareConfig.model_validate(words)
    prepare(config)
    first = read_outputs(tmp_path / "run")
    assert not ray.is_initialized()
    assert "p3" not in {problem.id for problem in read_problems(tmp_path / "run" / "data" / "test.jsonl").problems}
    told = explain_problem(PreparationFolder.of(config).look(), "p3").splitlines()[-1]
    assert told.startswith("Left out at same: is in theirs as well: p-three")
    add = f"to be tested on it: add problems.test_path={tmp_path / 'run'} to a training with problems.source=prepared"
    assert add in capsys.readouterr().out
    prepare(config)
    assert read_outputs(tmp_path / "run") == first
    prepare(PrepareConfig.model_validate({**words, "split": {"validation": 2}}))
    assert not (tmp_path / "run" / "data" / "test.parquet").exists(), "another split replaces the files"
    assert len(read_problems(tmp_path / "run" / "data" / "validation.jsonl").problems) == 2
    prepare(config)
    assert read_outputs(tmp_path / "run") == first


def test_a_finished_preparation_of_a_file_that_has_changed_is_refused_and_of_one_that_is_gone_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [problem_row(f"p{number}", number) for number in range(4)])
    words = {"sources": {"mine": {"path": str(path)}}, "solutions": {"check": False}, "sampling": "off"}
    config = PrepareConfig.model_validate({**words, "run": {"dir": str(tmp_path / "run")}})
    prepare(config)
    first = read_outputs(tmp_path / "run")
    write_rows(path, [problem_row("p9", 9)])
    with pytest.raises(UsageError, match=r"^The file of mine is not the one that .* was begun with: bring the old one"):
        prepare(config)
    path.unlink()
    capsys.readouterr()
    prepare(config)
    said = capsys.readouterr().out
    assert f"data: {tmp_path / 'run' / 'data'} (4 train)" in said
    assert f"problems.path={tmp_path / 'run'} model.path=MODEL generator.max_prompt_tokens=" in said, "of no model yet"
    assert read_outputs(tmp_path / "run") == first


def test_a_source_that_is_not_there_leaves_no_folder_behind(tmp_path: Path) -> None:
    words = {"sources": {"mine": {"path": "/nowhere.jsonl"}}, "run": {"dir": str(tmp_path / "run")}}
    with pytest.raises(UsageError, match=r"The file of mine, /nowhere\.jsonl, can't be read: No such file"):
        prepare(PrepareConfig.model_validate(words))
    assert not (tmp_path / "run").exists()


def test_a_template_that_cant_be_used_leaves_no_folder_behind(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [problem_row("p0", 0)])
    for template, said in (("nowhere.txt", "can't be read"), ("chat", "needs prompts.chat_template")):
        source = {"path": str(path), "template": template}
        words = {"sources": {"mine": source}, "run": {"dir": str(tmp_path / "run")}}
        with pytest.raises(UsageError, match=rf"sources\.mine\.template={template} .*{said}"):
            prepare(PrepareConfig.model_validate(words))
        assert not (tmp_path / "run").exists()


def test_large_files_are_read_by_tasks_to_the_same_end(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [problem_row(f"p{number}", number) for number in range(10)]
    path = write_rows(tmp_path / "rows.jsonl", [*rows[:6], "{", "", *rows[6:], rows[0]])
    words = {"sources": {"mine": {"path": str(path)}}, "solutions": {"check": False}, "sampling": "off"}

    def prepared(name: str) -> dict[str, bytes]:
        prepare(PrepareConfig.model_validate({**words, "run": {"dir": str(tmp_path / name)}}))
        return read_outputs(tmp_path / name)

    here = prepared("here")
    for name, value in (("LARGE", 1), ("BLOCK", 1500), ("AHEAD", 2)):
        monkeypatch.setattr(large_files, name, value)
    monkeypatch.setenv("RAY_ADDRESS", machines.address)
    assert prepared("tasks") == here
    assert b'"row": 7' in here["excluded.jsonl"]
    assert b"appears a second time" in here["excluded.jsonl"]


def test_blocks_that_were_read_leave_the_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a Ray of two CPUs, so that two blocks are submitted at a time."""
    path = write_rows(tmp_path / "rows.jsonl", [problem_row(f"p{number}", number) for number in range(12)])
    monkeypatch.setattr(large_files, "BLOCK", 1)
    monkeypatch.setattr(large_files, "AHEAD", 1)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    gc.collect()
    gc.disable()  # by itself it comes late, and by chance
    try:
        with local_ray(num_cpus=2, include_dashboard=False, log_to_driver=False):
            worker: Any = ray.worker.global_worker
            read = large_files.read_by_tasks(SourceFile("mine", (path,), None, ""), SourceConfig(path=str(path)))
            held = [len(worker.core_worker.get_all_reference_counts()) for _ in read]
    finally:
        gc.enable()
    assert len(held) == 12
    assert 0 < min(held[8:]) <= max(held[:4]), "what is in flight differs by a few from block to block"


def test_killed_preparation_goes_on_and_ends_with_the_same_bytes(
    starts: tuple[PreparationDriver, PreparationDriver],
) -> None:
    whole, killed = starts
    whole.complete()
    killed.start()
    while killed.lives and killed.commits() < 200:  # solutions and a chunk of samples are done, others are not
        time.sleep(0.01)
    assert killed.lives, killed.log()
    killed.kill()
    killed.complete()
    assert changed_outputs(whole.folder, killed.folder) == []
    card = json.loads((whole.folder / "card.json").read_text())
    assert card["stages"][2] == {"stage": "solutions", "came": 20, "dropped": 1, "went_on": 19}
    assert "its own solution does not pass (wrong" in (whole.folder / "excluded.jsonl").read_text()
    assert sum(count for passes, count in card["passes"].items() if passes != "0") > 0, "some are solved sometimes"

    prepared = build_problem_set(ProblemsConfig(source="prepared", path=str(whole.folder)))
    assert len(prepared.splits["validation"]) == 3
    assert len(prepared.splits["train"]) == card["splits"]["train"]
    lines = read_problems(whole.folder / "data" / "train.jsonl").problems
    assert [problem.tests for problem in lines] == [problem.tests for problem in prepared.splits["train"]]
    first = pq.read_table(whole.folder / "data" / "train.parquet").to_pylist()[0]
    assert (first["source"], first["licence"], first["revision"], first["samples"]) == ("mine", "MIT", "first", 4)
    assert "to train on it: python -m raypoly.train problems.source=prepared" in whole.log()


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared, which has LeetCode problems, is not here")
def test_leetcode_problems_killed_at_random_end_with_the_same_bytes(tmp_path: Path) -> None:
    """120 of them, five times; `python -m benchmarks.prepare` takes any file and any number."""
    with gzip.open(SHARED / "data" / "leetcode" / "LeetCodeDataset-v0.2.0-train.jsonl.gz", "rt") as whole:
        (tmp_path / "rows.jsonl").write_text("".join(islice(whole, 120)))
    words = ["--problems", str(tmp_path / "rows.jsonl"), "--kills", "5", "sampling.samples=4", "sampling.chunk=16"]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.prepare", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "killed 5 times" in ended.stdout
