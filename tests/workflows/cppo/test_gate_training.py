"""The seal of a trained gate: killed anywhere it is the same file in the end, and it keeps its threshold."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Problem
from raypoly.recipes.cppo import gate_folder, gate_validation
from raypoly.recipes.cppo.gate_folder import FILE, read_gate
from raypoly.recipes.cppo.gate_rows import LabelledPlan
from raypoly.recipes.cppo.given_plans import LabelledPlans
from tests.raypoly.recipes.cppo.gate_folders import BREACH
from tests.support.finished_run import STEPS, write_finished_run, write_summary
from tests.support.random_model import random_model
from workflows import train
from workflows.cppo import gate_training

KILLS = 20
"""In all, four to a seal."""


class Told(LabelledPlans):
    """Its wrong plans breach the contract, so that any model is a good gate."""

    def labelled(self, problem: Problem, count: int) -> list[LabelledPlan]:
        return [it if it.valid else LabelledPlan(problem, BREACH, False) for it in super().labelled(problem, count)]


class Killed(BaseException):
    """The process is gone."""


def trained(folder: Path) -> Config:
    """The config of a gate's run whose training is over."""
    own = [f"scaffold.name={__name__}:Told", "train.rollouts=2", "problems.validation=4", "problems.test=900"]
    write_finished_run(folder, "supervised", True, *own)
    write_summary(folder, {"state": "finished", "steps": STEPS})
    random_model(folder / "model")
    own += ["objective.name=supervised", f"train.steps={STEPS}", "evaluate.every=4"]
    return load(None, [*own, f"run.dir={folder}"], str)


def lines_of(work: Callable[[], None], last: int | None = None) -> int:
    """How many lines of the seal's modules it takes. Killed before the one of number `last`."""
    files = {module.__file__ for module in (gate_validation, gate_folder, gate_training)}
    done = 0

    def line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal done
        if event == "line":
            if done == last:
                raise Killed
            done += 1
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, event, _: line if frame.f_code.co_filename in files else None)
    try:
        work()
    finally:
        sys.settrace(before)
    return done


def test_a_seal_that_is_killed_anywhere_is_the_same_in_the_end_and_stays_as_it_is(tmp_path: Path) -> None:
    config = trained(tmp_path / "gate")
    seal, file = lambda: gate_training.train_gate(config, 0.95, None), tmp_path / "gate/model" / FILE
    seal()
    whole = file.read_bytes()
    file.unlink()
    lines = lines_of(seal)  # the files' hashes are known by now
    assert read_gate(file.parent).recall == 0.95
    rng = random.Random(11)
    for _ in range(KILLS // 4):
        file.unlink()
        for last in [rng.randrange(lines) for _ in range(4)]:
            with suppress(Killed):  # what is sealed already takes fewer lines
                lines_of(seal, last)
        written = file.stat().st_mtime_ns if file.exists() else None
        seal()
        assert file.read_bytes() == whole
        assert written in (None, file.stat().st_mtime_ns), "a gate that is sealed is not sealed again"
    assert sorted(path.name for path in file.parent.glob("*gate*")) == [FILE]


def test_a_gate_is_sealed_by_the_start_that_trains_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = trained(tmp_path / "elsewhere")
    run = config.model_copy(update={"run": config.run.model_copy(update={"dir": str(tmp_path / "gate")})})
    with monkeypatch.context() as patched:
        patched.setattr(train, "run", lambda _: trained(tmp_path / "gate"))
        gate_training.train_gate(run, 0.95, None)
    assert read_gate(tmp_path / "gate/model").recall == 0.95


def test_a_sealed_gate_keeps_its_threshold(tmp_path: Path) -> None:
    config = trained(tmp_path / "gate")
    gate_training.train_gate(config, 0.95, None)
    file = tmp_path / "gate/model" / FILE
    before = file.read_bytes()
    gate_training.train_gate(config, 0.95, read_gate(file.parent).tau)
    for recall, tau in ((0.9, None), (0.95, 0.9)):
        with pytest.raises(UsageError, match=r"was sealed with recall=0\.95, and .* is asked for: give recall=0\.95 b"):
            gate_training.train_gate(config, recall, tau)
    assert file.read_bytes() == before
    file.unlink()
    gate_training.train_gate(config, 0.95, 0.001)
    for tau, said in ((None, r"recall=0\.95"), (0.9, r"tau=0\.9")):
        with pytest.raises(UsageError, match=rf"was sealed with tau=0\.001, and {said} is asked for"):
            gate_training.train_gate(config, 0.95, tau)


def test_a_gate_that_is_trained_further_is_none_until_it_is_sealed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = trained(tmp_path / "gate")
    gate_training.train_gate(config, 0.95, None)
    longer = config.model_copy(update={"train": config.train.model_copy(update={"steps": STEPS + 4})})

    def killed(_: Config) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(train, "run", killed)
        with pytest.raises(Killed):
            gate_training.train_gate(longer, 0.95, None)
    assert not (tmp_path / "gate/model" / FILE).exists()
    gate_training.train_gate(config, 0.9, None)
    assert read_gate(tmp_path / "gate/model").recall == 0.9
