"""Prompts of their own for a group's rollouts, and what the learner says of each response behind all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from raypoly.algorithms.objectives import Credit, Objective, ScoredGroup, build
from raypoly.algorithms.objectives.objective import ObjectiveConfig
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from raypoly.core.values import Draft, Float64, Problem
from raypoly.planning.preflight import refuse_asking_between
from raypoly.rollouts.scaffolds import Ask, Scaffold
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import Taken, facts, held, open_virtual, stopped_after, taken

UPSKILL = ("objective.name=upskill", "objective.skills=3")


def run_of(folder: Path, *overrides: str, shared: bool = False) -> Taken:
    return taken(open_virtual(folder, (), overrides, shared))


def test_each_rollout_is_sampled_and_trained_behind_its_own_prompt(tmp_path: Path) -> None:
    run = run_of(tmp_path / "skills", *UPSKILL)
    (step,), (plain,) = run.steps, run_of(tmp_path / "plain").steps
    assert run.submitted == [list(range(12))], "three requests a group, in slot order, in one submission"
    for group, same in zip(step.groups, plain.groups, strict=True):
        assert (group.slot, group.problem_id) == (same.slot, same.problem_id)
        assert [it.seed for it in group.rollouts] == [it.seed for it in same.rollouts], "in the order of rollouts"
        number = same.rollouts[0].prompt_tokens.tolist()
        prompts = [rollout.prompt_tokens.tolist() for rollout in group.rollouts]
        assert prompts == [[z, *number] for z in (1, 2, 3, 1)]


@pytest.mark.parametrize("shared", [False, True], ids=["own device", "shared device"])
def test_advantages_are_those_of_what_the_learner_said(tmp_path: Path, shared: bool) -> None:
    run = run_of(tmp_path, *UPSKILL, shared=shared)
    (step,) = run.steps
    objective = build("upskill", skills=3)
    for group, rewards, advantages in zip(step.groups, step.rewards, step.advantages, strict=True):
        cross = group.cross_logprobs
        assert cross is not None
        assert cross.own_prompt.tolist() == [0, 1, 2, 0]
        assert [each.shape for each in cross.logprobs] == [(3, 2)] * 4
        want = objective.advantages(rewards=rewards, cross_logprobs=cross.logprobs, own_prompt=cross.own_prompt)
        np.testing.assert_array_equal(advantages, want)
        assert advantages.tolist() != build("grpo", std="sample").advantages(rewards=rewards).tolist()
    assert run.learner.told.count("cross") == 4
    metrics = step.applied.metrics
    assert {"cross"} <= metrics["seconds"].keys() & metrics["exposed"].keys()
    assert sum(metrics["exposed"].values()) == pytest.approx(metrics["seconds"]["total"], abs=1e-2)


def test_other_objectives_ask_the_learner_nothing_and_say_nothing_of_it(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    (step,) = run.steps
    assert "cross" not in run.learner.told
    assert not {"cross"} & (step.applied.metrics["seconds"].keys() | step.applied.metrics["exposed"].keys())
    assert [group.cross_logprobs for group in step.groups] == [None] * 4
    assert run.submitted == [[0, 1, 2, 3]]


def test_what_the_objective_measured_is_in_the_row(tmp_path: Path) -> None:
    (step,) = run_of(tmp_path / "whole", *UPSKILL).steps
    objective, means = build("upskill", skills=3), []
    for group, rewards in zip(step.groups, step.rewards, strict=True):
        cross = group.cross_logprobs
        assert cross is not None
        credit = objective.credit(rewards=rewards, cross_logprobs=cross.logprobs, own_prompt=cross.own_prompt)
        means.append(credit.measures["mi_reward"])
    assert step.applied.metrics["objective/mi_reward"] == pytest.approx(np.mean(means), abs=1e-12)
    (plain,) = run_of(tmp_path / "plain").steps
    assert not [name for name in plain.applied.metrics if name.startswith("objective/")]


class Measures(Objective):
    """Measures what its class says."""

    told: ClassVar[dict[Any, Any]] = {}

    def compute(self, group: ScoredGroup) -> Credit:
        return Credit(group.rewards - group.rewards.mean(), measures=self.told)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"mi": float("nan")}, "measures mi=nan: give a finite number"),
        ({"mi": None}, "measures mi=None: give a finite number"),
        ({"mi": True}, "measures mi=True"),
        ({"mi": np.ones(2)}, "give a finite number"),
        ({"Mean MI": 1.0}, "measures 'Mean MI': a name is"),
        ({"a/b": 1.0}, "a name is"),
        ({3: 1.0}, "measures 3: a name is"),
        ({"x" * 61: 1.0}, "at most 60"),
    ],
)
def test_a_measure_that_is_no_number_or_has_no_name_is_refused(told: dict[Any, Any], said: str) -> None:
    objective = Measures(ObjectiveConfig())
    objective.told = told  # type: ignore[misc]
    with pytest.raises(UsageError) as refused:
        objective.advantages([0, 1])
    assert said in str(refused.value)
    assert "Measures" in str(refused.value)


def test_numbers_of_any_kind_are_measures_and_a_bad_one_ends_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = f"objective.name={__name__}:Measures"
    monkeypatch.setattr(Measures, "told", {"whole": 2, "of_numpy": np.float32(0.5)})
    (step,) = run_of(tmp_path / "good", own).steps
    found = {name: value for name, value in step.applied.metrics.items() if name.startswith("objective/")}
    assert found == {"objective/whole": 2.0, "objective/of_numpy": 0.5}
    monkeypatch.setattr(Measures, "told", {"mi": float("inf")})
    with pytest.raises(ExceptionGroup) as refused:
        run_of(tmp_path / "bad", own)
    assert refused.group_contains(UsageError, match="measures mi=inf")


def test_the_learner_is_asked_about_every_group_before_a_step_s_first_update(tmp_path: Path) -> None:
    learner = run_of(tmp_path, *UPSKILL, "train.mini_batch_prompts=2", "loss.name=clipped_surrogate").learner
    told = [each if isinstance(each, str) else "group" for each in learner.told]
    assert told == [*["cross"] * 4, "group", "group", "update", "group", "group", "apply"]


def test_a_run_that_is_stopped_anywhere_asks_for_what_is_missing_alone_and_ends_alike(tmp_path: Path) -> None:
    (want,) = run_of(tmp_path / "undisturbed", *UPSKILL).steps
    for stop in (0, 3, 4, 8, 10, 12):  # the step commits 4 groups, their verdicts, what was said of them
        folder = tmp_path / f"stopped-{stop}"
        run_virtual(stopped_after(open_virtual(folder, (), UPSKILL, shared=False), stop))
        known = held(open_virtual(folder, (), UPSKILL, shared=False), "prompt_logprobs")
        run = run_of(folder, *UPSKILL)
        (got,) = run.steps
        assert facts(got.groups) == facts(want.groups)
        assert got.applied.digest == want.applied.digest
        assert got.applied.metrics["objective/mi_reward"] == want.applied.metrics["objective/mi_reward"]
        assert [each.tobytes() for each in got.advantages] == [each.tobytes() for each in want.advantages]
        assert run.learner.told.count("cross") == 4 - known, stop
        assert run.submitted == ([list(range(12))] if stop < 4 else []), "a submission is whole, or not at all"
    assert known == 4


class InPairs(Scaffold):
    """Two prompts, each for two neighbours."""

    def ask(self, problem: Problem, drafts: Sequence[Draft], attempts: int) -> list[Ask]:
        return [Ask(f"{5 + i // 2} {problem.prompt}") for i in range(attempts)]


class Remembers(Objective):
    """A third party's, with two prompts, that keeps in memory how likely responses were."""

    needs = frozenset({"cross_logprobs", "problem"})
    scaffold = f"{__name__}:InPairs"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.seen: dict[str, float] = {}

    def compute(self, group: ScoredGroup) -> Float64:
        assert group.cross_logprobs is not None
        assert group.own_prompt is not None
        assert group.problem is not None
        assert group.own_prompt.tolist() == [0, 0, 1, 1]
        self.seen[group.problem] = float(sum(each.sum() for each in group.cross_logprobs))
        return group.rewards - group.rewards.mean()

    def state_dict(self) -> dict[str, Any]:
        return {"seen": dict(self.seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = dict(state["seen"])


def test_an_objective_that_remembers_sees_the_same_again_when_a_run_goes_on(tmp_path: Path) -> None:
    own = (f"objective.name={__name__}:Remembers",)

    def seen() -> dict[str, float]:
        found: dict[str, float] = run_of(tmp_path, *own).opened.objective.state_dict()["seen"]
        return found

    before = seen()
    assert len(set(before.values())) == 4
    assert seen() == before, "of the journal alone"


def test_a_prompt_that_is_too_long_with_what_the_scaffold_puts_before_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as refused:
        run_of(tmp_path, *UPSKILL, "generator.max_prompt_tokens=1")
    (error,) = refused.value.exceptions
    assert isinstance(error, UsageError)
    assert "has 2 tokens with what its scaffold adds to it, generator.max_prompt_tokens is 1" in str(error)


def test_on_a_shared_device_groups_can_t_be_asked_about_and_refilled() -> None:
    config = load(None, [*UPSKILL, "train.refill=3"], lambda text: None)
    refuse_asking_between(config, False)
    with pytest.raises(UsageError, match=r"train\.refill=3 samples more when groups are valued: set train\.refill=0"):
        refuse_asking_between(config, True)
    plain = load(None, ["train.refill=3"], lambda text: None)
    refuse_asking_between(plain, True)
    with pytest.raises(UsageError, match=r"^The stage mine asks the learner's device about each group"):
        refuse_asking_between(plain, True, ["mine"])
    refuse_asking_between(load(None, list(UPSKILL), lambda text: None), True)
