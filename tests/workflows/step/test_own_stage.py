"""A stage of a user's own, from one file outside the tree: the one that docs/add-a-stage.md shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from raypoly.algorithms.group_stage import GroupStage, StageKeys
from raypoly.algorithms.objectives import Objective, ScoredGroup, build
from raypoly.algorithms.objectives.objective import ObjectiveConfig
from raypoly.core import errors
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import UNKNOWN, Float64, Group, Problem, Skipped
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.rollout_files import RolloutFiles
from raypoly.run.store.step_records import CompletedStep
from tests.support.local_driver import LocalDriver, run_killed_driver
from tests.support.ray_machines import Machines
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import held, open_virtual, stopped_after, taken
from workflows.step.stages import build_stages

PAGE = Path(__file__).resolve().parents[3] / "docs" / "add-a-stage.md"
KEYS = ("stages.own=[brevity:Brevity]", "objective.name=brevity:ShortIsBetter")
LOGGED = """
import os
from brevity import Brevity


class Logged(Brevity):
    async def run(self, group, problem, services):
        with open(os.environ["STAGE_LOG"], "a") as log:
            log.write(f"{group.step} {group.slot}\\n")
        return await super().run(group, problem, services)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the page's file, on Python's path."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert source.count("\n") <= 30
    (tmp_path / "brevity.py").write_text(source)
    (tmp_path / "logged.py").write_text(LOGGED)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def take_step(folder: Path, *keys: str) -> tuple[CompletedStep, list[Group]]:
    """The first step as the journal has it, and its groups as they were trained on."""
    run = taken(open_virtual(folder, (), keys, shared=False))
    return run.steps[0], [run.opened.stages.decode(group) for group in run.steps[0].groups]


def test_its_part_is_journalled_measured_kept_and_makes_advantages(module: Path) -> None:
    step, groups = take_step(module / "run", *KEYS)
    values = [1.0 / (1 + len(rollout.text)) for group in groups for rollout in group.rollouts]
    for group, rewards, advantages in zip(groups, step.rewards, step.advantages, strict=True):
        worth = rewards * group.findings["brevity"]
        np.testing.assert_array_equal(advantages, worth - worth.mean())
    assert step.applied.metrics["brevity/value"] == pytest.approx(np.mean(values))
    assert step.applied.metrics["brevity/unknown"] == 0
    assert "brevity" in step.applied.metrics["seconds"]
    table = RolloutFiles(LocalStore(module / "run")).table(0)
    assert table.column("brevity/value").to_pylist() == values
    assert set(table.column("brevity/state").to_pylist()) == {"known"}
    assert len(step.groups) == 4


def test_a_run_that_is_stopped_anywhere_computes_no_part_twice(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGE_LOG", str(module / "whole.log"))
    keys = ("stages.own=[logged:Logged]", KEYS[1])
    want, _ = take_step(module / "whole", *keys)
    for stop in (0, 4, 8, 10, 12):  # the step commits 4 groups, their verdicts, and their parts
        log, folder = module / f"{stop}.log", module / f"stopped-{stop}"
        monkeypatch.setenv("STAGE_LOG", str(log))
        opening = open_virtual(folder, (), keys, shared=False)
        run_virtual(stopped_after(opening, stop))
        before = log.read_text().count("\n") if log.exists() else 0
        kept = held(open_virtual(folder, (), keys, shared=False), "brevity")
        got, _ = take_step(folder, *keys)
        assert got.applied.digest == want.applied.digest, stop
        assert log.read_text().count("\n") - before == 4 - kept, stop
    assert kept == 4


@pytest.mark.slow
@pytest.mark.usefixtures("module")
def test_a_real_run_that_is_killed_ends_with_the_same_weights_and_computes_each_part_once(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    keys = [*small_run, "train.steps=2", "stages.own=[logged:Logged]", KEYS[1]]
    environment = {"RAY_ADDRESS": machines.address, "PYTHONPATH": str(tmp_path)}
    whole = LocalDriver(tmp_path / "whole", keys, {**environment, "STAGE_LOG": str(tmp_path / "whole.findings")})
    assert whole.finish() == 0, whole.log()
    logs = {**environment, "STAGE_LOG": str(tmp_path / "hit.parts")}
    run_killed_driver(machines, whole, tmp_path / "hit", keys, after=(3, 9), environment=logs)
    computed = (tmp_path / "hit.parts").read_text().split("\n")[:-1]
    # a kill may come between the computation and its commit, which is a few milliseconds
    assert len(computed) <= len(set(computed)) + 2
    assert set(computed) == set((tmp_path / "whole.findings").read_text().split("\n")[:-1])


class Doubts(GroupStage):
    """Does not know, or can't work on, a group of one problem."""

    name = "doubts"
    axis = "group"
    columns: ClassVar[dict[str, pa.DataType]] = {"count": pa.int64(), "word": pa.string()}
    raised: ClassVar[type[Exception] | None] = None
    first: ClassVar[list[str]] = []

    async def run(self, group: Group, problem: Problem, services: Any) -> Any:
        if group.slot == 1 and self.raised is not None:
            raise self.raised("it can't be said")
        if group.slot == 2 and not self.first:
            self.first.append(problem.id)
            raise errors.Away("it is away")
        return {"count": group.size, "word": problem.id}


class NeedsDoubts(Objective):
    needs = frozenset({"doubts"})

    def compute(self, group: ScoredGroup) -> Float64:
        assert group.findings["doubts"]["count"] == 4
        return group.rewards - group.rewards.mean()


OWN = (f"stages.own=[{__name__}:Doubts]", f"objective.name={__name__}:NeedsDoubts")


@pytest.mark.parametrize("raised", [None, errors.Unknown, errors.Infra])
def test_its_ways_out_pause_the_run_or_leave_the_group_without_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: type[Exception] | None
) -> None:
    monkeypatch.setattr(Doubts, "raised", raised)
    monkeypatch.setattr(Doubts, "first", [])
    step, groups = take_step(tmp_path, *OWN)
    lost = groups[1].findings["doubts"]
    assert len(step.applied.metrics["pauses"]) == 1
    assert step.advantages[0].any()
    assert step.advantages[1].any() == (raised is None)
    assert groups[0].findings["doubts"] == {"count": 4, "word": groups[0].problem_id}
    assert step.applied.metrics["doubts/count"] == 4
    assert step.applied.metrics["doubts/unknown"] == (raised is not None)
    states = RolloutFiles(LocalStore(tmp_path)).table(0).column("doubts/state").to_pylist()[4:8]
    if raised is errors.Unknown:
        assert lost is UNKNOWN
        assert states == ["unknown"] * 4
        assert np.isfinite(step.rewards[1]).all()
    elif raised is errors.Infra:
        assert lost == Skipped("it can't be said")
        assert states == ["skipped: it can't be said"] * 4
        assert np.isnan(step.rewards[1]).all()
        assert step.applied.metrics["set_aside"] == 1
    assert step.applied.metrics["set_aside_problems"] == (
        {groups[1].problem_id: "it can't be said"} if raised is errors.Infra else {}
    )


class Broken(GroupStage):
    """Gives what its class says."""

    name = "broken"
    given: ClassVar[Any] = None

    async def run(self, group: Group, problem: Problem, services: Any) -> Any:
        return self.given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1.0], "The stage broken must give 4 values"),
        ([1.0, 2.0, 3.0, float("nan")], "gave a value that is no number: raise Unknown instead"),
        (["a", "b", "c", "d"], "gave a finding that does not fit its columns"),
    ],
)
def test_a_finding_that_is_none_ends_the_run_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any, said: str
) -> None:
    monkeypatch.setattr(Broken, "given", given)
    with pytest.raises(ExceptionGroup) as refused:
        take_step(tmp_path, f"stages.own=[{__name__}:Broken]")
    assert refused.group_contains(UsageError, match=said)


class Loops(Broken):
    name = "loops"
    after = ("loops",)


class Late(Broken):
    name = "late"
    after = ("nowhere",)


class Taken(Broken):
    name = "judge"


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("Loops", "The stages loops, loops come after each other"),
        ("Late", "The stage late comes after nowhere, which is no stage here"),
        ("Taken", "is named 'judge', which is taken or no name"),
        ("Nothing", "is there and has no Nothing"),
    ],
)
def test_stages_that_do_not_fit_are_refused_before_anything_starts(own: str, said: str) -> None:
    config: Config = load(None, [f"stages.own=[{__name__}:{own}]"], lambda text: None)
    with pytest.raises(UsageError, match=re.escape(said)):
        build_stages(config, build("grpo"))


class TunedKeys(StageKeys):
    unit: int = 1


class Tuned(Broken):
    name = "tuned"
    Keys = TunedKeys


def test_a_stage_reads_its_own_keys_and_refuses_others() -> None:
    own = f"stages.own=[{__name__}:Tuned]"
    stages = {it.name: it for it in build_stages(load(None, [own, "stages.tuned.unit=3"], str), build("grpo"))}
    assert stages["tuned"].keys.unit == 3
    for key, said in (
        ("stages.tuned.unt=3", r"stages\.tuned\.unt=3 does not fit stage tuned: .*\(it takes: unit\)"),
        ("stages.judge.unit=3", r"stages\.judge\.unit=3 does not fit stage judge"),
        ("stages.nobody.unit=3", r"stages\.nobody has keys of a stage that is not there"),
    ):
        with pytest.raises(UsageError, match=said):
            build_stages(load(None, [own, key], str), build("grpo"))


class BringsDoubts(NeedsDoubts):
    stages = (f"{__name__}:Doubts",)


def test_an_objective_may_bring_a_stage_for_which_another_of_its_name_stands_in() -> None:
    brings = BringsDoubts(ObjectiveConfig())
    for own, kind in (([], "Doubts"), ([f"stages.own=[{__name__}:OtherDoubts]"], "OtherDoubts")):
        found = {it.name: type(it).__name__ for it in build_stages(load(None, own, str), brings)}
        assert found["doubts"] == kind


class OtherDoubts(Doubts):
    pass


def test_an_objective_that_needs_a_stage_which_the_run_has_not_is_refused() -> None:
    config = load(None, [OWN[1]], lambda text: None)
    with pytest.raises(UsageError, match=r"needs doubts: add the stage to stages\.own"):
        build_stages(config, NeedsDoubts(ObjectiveConfig()))


def pays_for_brevity(problem: Problem, rollout: Any, verdict: Any, findings: Any) -> float:
    """A reward function that reads parts."""
    return float(verdict.passed) * (2 if "doubts" in findings and findings["doubts"]["word"] == problem.id else 1)


@pytest.mark.parametrize("raised", [None, errors.Unknown])
def test_a_reward_function_reads_parts_and_an_unknown_one_is_no_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: type[Exception] | None
) -> None:
    monkeypatch.setattr(Doubts, "raised", raised)
    monkeypatch.setattr(Doubts, "first", ["seen"])
    step, _ = take_step(tmp_path, OWN[0], f"reward.name={__name__}:pays_for_brevity")
    assert set(step.rewards[0].tolist()) <= {0.0, 2.0}
    assert np.isnan(step.rewards[1]).all() == (raised is errors.Unknown)
    assert step.advantages[1].any() == (raised is None)
    assert np.isfinite(step.applied.metrics["reward"])
