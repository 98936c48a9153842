"""A real run on given responses: no engine, no scorer, killed on its way, to a plateau; the same command finds it
finished."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raypoly import Run
from raypoly.core.config import Config, WarmStartConfig
from raypoly.core.settings import load
from raypoly.data import build_problem_set
from raypoly.data.puzzles import puzzle_of
from raypoly.learner.supervised_examples import make_example
from raypoly.run.run_files import is_finished
from raypoly.run.run_identity import resolve_run
from tests.support.local_driver import LocalDriver, run_killed_driver
from tests.support.ray_machines import Machines


@pytest.fixture
def overrides(small_run: list[str], tmp_path: Path) -> list[str]:
    """Twelve steps at most, of ten rows each, with a plateau after four."""
    puzzles = [puzzle_of(problem) for problem in build_problem_set(Config().problems).splits["train"]]
    examples = [make_example(puzzles, WarmStartConfig(), index) for index in range(120)]
    rows = [json.dumps({"prompt": it.prompt, "response": it.response}) for it in examples]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    of_training = ["steps=12", "prompts_per_step=10", "rollouts=1", "checkpoint_every=3"]
    stop = ["train.stop.measure=-loss", "train.stop.window=2", "train.stop.least_gain=100"]
    own = ["scaffold.name=given", "objective.name=supervised", f"scaffold.rows={tmp_path / 'rows.jsonl'}"]
    return [*small_run, *own, *(f"train.{key}" for key in of_training), *stop, "evaluate.every=0"]


def test_a_run_on_given_responses_ends_at_its_plateau_and_killed_with_the_same_bits(
    machines: Machines, overrides: list[str], tmp_path: Path
) -> None:
    environment = {"RAY_ADDRESS": machines.address}
    whole = LocalDriver(tmp_path / "whole", overrides, environment)
    assert whole.finish() == 0, whole.log()
    said = whole.log()
    assert "Starting learner ..." in said
    assert "to compare" not in said
    assert "The run ends after step 4, at a plateau (train.stop)." in said

    run = Run(whole.folder)
    assert (run.steps_done, run.summary["state"], run.summary["steps"]) == (4, "finished", 4)
    assert run.finished
    assert is_finished(resolve_run(load(None, [*overrides, f"run.dir={whole.folder}"], str)))
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        file.name for file in (whole.folder / "model").iterdir()
    }
    rows = whole.rows()
    assert all(row["reward"] is None and row["mismatch_mean"] is None and row["probe_mean"] is None for row in rows)
    assert rows[-1]["loss"] < rows[0]["loss"]

    run_killed_driver(machines, whole, tmp_path / "killed", overrides, [12], environment)
    weights = whole.weights()
    assert whole.finish() == 0
    assert (Run(whole.folder).steps_done, whole.weights()) == (4, weights), "what is finished is left as it is"


def test_a_bad_row_ends_the_command_with_one_sentence_and_code_2(overrides: list[str], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "response": "b"}\n{"prompt": "a"}\n')
    driver = LocalDriver(tmp_path / "run", overrides)
    assert driver.finish() == 2
    (line,) = [line for line in driver.log().splitlines() if "rows.jsonl" in line]
    assert line.endswith(
        "rows.jsonl row 2 can't be trained on: it has no response, and no last message of the role assistant. "
        "Mend it, or take it out."
    )
