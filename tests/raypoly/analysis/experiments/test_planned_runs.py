"""Every arm is checked before anything starts, and a run knows whether there is anything left to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from raypoly.analysis.experiments.planned_runs import check_runs, plan_runs
from raypoly.core.errors import UsageError
from tests.raypoly.analysis.experiments.made_experiments import experiment, finish, runs_of


def test_what_is_wrong_with_arms_is_said_of_them_and_nothing_is_made(tmp_path: Path) -> None:
    text = "arms: {good: {}, typo: {train.stepz: 3}, other: {train.stepz: 4}, value: {train.lr: fast}}"
    with pytest.raises(UsageError) as refused:
        runs_of(tmp_path, text)
    one, two = str(refused.value).splitlines()
    assert one.startswith("Arm typo, other: There is no key train.stepz (in its keys)")
    assert "did you mean train.steps?" in one
    assert two.startswith("Arm value: train.lr=fast (in its keys) should be a number")
    assert not (tmp_path / "out").exists()


def test_a_mistake_on_the_command_line_is_no_arms(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^There is no key train.stepz \(on the command line\)"):
        plan_runs(experiment(tmp_path), tmp_path / "out", ["train.stepz=3"])
    with pytest.raises(UsageError, match=r"run\.push_to_hub=me/mine: each run would replace the model"):
        plan_runs(experiment(tmp_path), tmp_path / "out", ["run.push_to_hub=me/mine"])
    with pytest.raises(UsageError, match=r"train\.seed=3 can't be given"):
        plan_runs(experiment(tmp_path), tmp_path / "out", ["train.seed=3"])


def test_what_no_run_could_do_is_refused_by_arm(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, "arms: {wide: {objective.set_size: 8}, off: {objective.name: grop}}")
    with pytest.raises(UsageError) as refused:
        check_runs(runs, 1)
    wide, off = str(refused.value).splitlines()
    assert wide.startswith("Arm wide: ")
    assert "smaller than train.rollouts=8" in wide
    assert off.startswith("Arm off: objective.name='grop' is unknown; did you mean 'grpo'?")


def test_runs_at_once_share_the_machine_and_finished_ones_need_nothing(tmp_path: Path) -> None:
    runs = runs_of(tmp_path)
    with pytest.raises(UsageError, match=r"^Every arm: This run needs .* has its share") as refused:
        check_runs(runs, 10_000)
    assert "\n" not in str(refused.value)
    for run in runs:
        finish(run)
    assert check_runs(runs, 10_000) == []


def test_a_run_is_finished_when_it_has_the_steps_that_are_asked_for(tmp_path: Path) -> None:
    first, *others = runs_of(tmp_path)
    assert not first.finished
    finish(first)
    assert first.finished
    assert not any(run.finished for run in others)
    longer = runs_of(tmp_path, "arms: {grpo: {objective.name: grpo, steps: 13, evaluate.every: 4}}")
    assert not longer[0].finished
    with pytest.raises(UsageError, match=r"Arm grpo: .*grpo-s0 has 12 steps and train.steps=11"):
        runs_of(tmp_path, "arms: {grpo: {objective.name: grpo, steps: 11, evaluate.every: 4}}")
    with pytest.raises(UsageError, match=r"train.lr is 0.5 now and was 0.0003"):
        runs_of(tmp_path, "arms: {grpo: {objective.name: grpo, steps: 12, evaluate.every: 4, train.lr: 0.5}}")
