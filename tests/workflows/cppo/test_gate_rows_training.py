"""A gate is trained on rows of a file, and measured on rows of other problems before it may be used."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.recipes.cppo.gate_folder import read_gate
from raypoly.recipes.cppo.gate_question import TEMPLATE
from raypoly.recipes.cppo.gate_rows import LabelledPlan, encode_rows
from raypoly.run.run_files import is_finished
from raypoly.run.run_identity import resolve_run
from tests.raypoly.recipes.cppo.gate_folders import PLAN, PROBLEM, REWORDED
from tests.support.local_driver import ROOT
from tests.support.ray_machines import Machines
from workflows.cppo.gate_training import train_gate


def rows(file: Path, problems: Sequence[int]) -> Path:
    """A file with a valid plan and another for each problem."""
    plans = [
        LabelledPlan(replace(PROBLEM, id=f"p{number}"), text, valid)
        for number in problems
        for text, valid in ((PLAN, True), (REWORDED, False))
    ]
    file.write_bytes(encode_rows(plans))
    return file


def overrides(folder: Path) -> list[str]:
    own = ["scaffold.name=given", f"scaffold.rows={folder / 'gate.jsonl'}", "objective.name=supervised"]
    steps = ["train.rollouts=1", "train.steps=30", "train.prompts_per_step=8", "train.lr=3e-3", "evaluate.every=0"]
    prompts = ["problems.chat_template=plain", "generator.max_prompt_tokens=1024", "ray.dashboard=false"]
    return [*own, *steps, *prompts, f"run.dir={folder / 'run'}"]


def config(folder: Path, *more: str) -> Config:
    return load(None, [*overrides(folder), *more], lambda text: None)


def test_what_it_cant_be_trained_or_measured_on_is_one_sentence(tmp_path: Path) -> None:
    rows(tmp_path / "gate.jsonl", range(4))
    held_out = rows(tmp_path / "held_out.jsonl", range(3, 6))
    with pytest.raises(UsageError, match=r"^p3 is in .*gate.jsonl and in .*held_out.jsonl: a gate is measured on prob"):
        train_gate(config(tmp_path), 0.95, None, str(held_out))
    with pytest.raises(UsageError, match=r"nowhere.jsonl is not there"):
        train_gate(config(tmp_path), 0.95, None, str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(UsageError, match=r"labelled plans: set scaffold.name=labelled_plans, or .*given and held-out"):
        train_gate(config(tmp_path), 0.95, None)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_gate_of_rows_is_sealed_with_the_template_of_its_rows(
    machines: Machines, warm_model: Path, tmp_path: Path
) -> None:
    rows(tmp_path / "gate.jsonl", range(20))
    held_out = rows(tmp_path / "held_out.jsonl", range(20, 24))
    words = [*overrides(tmp_path), f"model.path={warm_model}"]
    command = [sys.executable, "-m", "raypoly.cli", "train-gate", f"--held-out={held_out}", *words]
    environment = {**os.environ, "RAY_ADDRESS": machines.address}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on 8 plans of 4 other problems: AUC 1.000" in done.stdout
    found = read_gate(tmp_path / "run" / "model")
    assert (found.template, found.words, found.validation["plans"]) == (TEMPLATE, ("pass", "fail"), 8)
    assert is_finished(resolve_run(config(tmp_path, f"model.path={warm_model}")))
