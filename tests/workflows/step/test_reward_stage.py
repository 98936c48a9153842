"""The stage `reward` in the loop: terms are paid and kept, and a rollout of unknown outcome has no part in anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raypoly.algorithms.objectives import build
from raypoly.core.errors import Away, RaypolyError
from raypoly.core.values import Float64, Group, Problem, Rollout, Verdict
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.rollout_files import RolloutFiles
from raypoly.run.store.step_records import CompletedStep
from raypoly.verifier.rewards import AnsweredGroup
from raypoly.verifier.rewards.terms import Term
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import Taken, open_virtual, stopped_after, taken

OWN = f"reward.name={__name__}:sometimes_unknown"
PARITY = (f"reward.terms.parity.name={__name__}:Parity", "reward.terms.parity.weight=0.5")
BOTH = ("reward.terms.length.weight=0.25", "reward.terms.length.when=passed", *PARITY)


def sometimes_unknown(problem: Problem, rollout: Rollout, verdict: Verdict) -> Any:
    """Unknown for about a tenth of the seeds."""
    return {"score": None if rollout.seed % 10 == 3 else float(verdict.passed), "seed": rollout.seed % 7}


class Parity(Term):
    """1 for an odd seed, unknown for the group of problem p2."""

    def compute(self, group: AnsweredGroup) -> list[float]:
        unknown = group.problem.id == "p2"
        return [float("nan") if unknown else float(rollout.seed % 2) for rollout in group.rollouts]


def step_of(folder: Path, *keys: str, dull: Sequence[str] = ()) -> tuple[Taken, CompletedStep, list[Group]]:
    """The first step as the journal has it, and its groups as they were trained on."""
    run = taken(open_virtual(folder, dull, keys, shared=False))
    return run, run.steps[0], [run.opened.stages.decode(group) for group in run.steps[0].groups]


def centred(values: Float64) -> Float64:
    return values - values.mean()


def test_terms_are_paid_and_the_outcome_stays_what_is_right(tmp_path: Path) -> None:
    run, step, groups = step_of(tmp_path, *BOTH)
    for group, outcome, advantages in zip(groups, step.rewards, step.advantages, strict=True):
        assert set(outcome.tolist()) <= {0.0, 1.0}, "the column `reward` is the outcome"
        odd = np.array([rollout.seed % 2 for rollout in group.rollouts], float)
        length = (outcome == 1) * 1.0  # all of one length
        known = 0.0 if group.problem_id == "p2" else 0.5 * odd
        np.testing.assert_allclose(advantages, centred(outcome + 0.25 * length + known), atol=1e-15)
    row = step.applied.metrics
    assert row["reward/length"] == 1.0
    assert row["reward/parity_unknown"] == pytest.approx(np.mean([group.problem_id == "p2" for group in groups]))
    assert row["reward/outcome_spread"] > row["reward/length_spread"] > 0 or row["reward/length_spread"] == 0.5
    assert (row["unknown_rollouts"], row["unknown_groups"]) == (0, 0)
    table = RolloutFiles(LocalStore(tmp_path)).table(0)
    assert {"reward/outcome", "reward/length", "reward/parity"} <= set(table.column_names)
    assert run.opened.stages.runs("reward")


def test_the_judges_grades_are_a_stage_whose_finding_a_term_reads(tmp_path: Path) -> None:
    keys = ["judge.name=openai", "judge.model=m", "reward.terms.judge.weight=2", "reward.terms.judge.question=Nice?"]
    run, step, groups = step_of(tmp_path, *keys, "train.prompts_per_step=32")
    assert [stage.name for stage in run.opened.stages.stages] == ["score", "grades", "reward"]
    for group, outcome, advantages in zip(groups, step.rewards, step.advantages, strict=True):
        refused = group.problem_id == "p2"
        graded = [0.0 if refused else len("Nice?") * (rollout.seed % 3) / 100 for rollout in group.rollouts]
        np.testing.assert_allclose(advantages, centred(outcome + 2 * np.array(graded)), atol=1e-15)
    assert step.applied.metrics["grades/unknown"] == 1
    assert step.applied.metrics["reward/judge_unknown"] == pytest.approx(1 / 32)


def test_without_terms_there_is_no_stage_and_no_column(tmp_path: Path) -> None:
    run, _, groups = step_of(tmp_path)
    assert not run.opened.stages.runs("reward")
    assert all("reward" not in group.findings for group in groups)


def test_a_term_alone_gives_a_gradient_to_a_group_of_equal_outcomes(tmp_path: Path) -> None:
    dull = [f"p{number}" for number in range(32)]
    _, plain, _ = step_of(tmp_path / "plain", dull=dull)
    _, step, groups = step_of(tmp_path / "terms", *PARITY, dull=dull)
    assert not any(advantages.any() for advantages in plain.advantages)
    assert "reward/groups_by_terms" not in plain.applied.metrics
    teach = [bool(advantages.any()) for advantages in step.advantages]
    assert step.applied.metrics["reward/groups_by_terms"] == sum(teach) > 0
    assert all(not taught for group, taught in zip(groups, teach, strict=True) if group.problem_id == "p2")


def test_strategies_that_teach_by_themselves_are_not_kept_by_a_term(tmp_path: Path) -> None:
    keys = ["objective.name=poly_epo", "objective.set_size=2", *PARITY, f"reward.name={__name__}:always_right"]
    _, step, _ = step_of(tmp_path, *keys)
    assert all(set(rewards.tolist()) == {1.0} for rewards in step.rewards)
    assert all(advantages.any() for advantages in step.advantages)
    assert step.applied.metrics["reward/groups_by_terms"] == 0


def always_right(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    return 1.0


@pytest.mark.parametrize("objective", [["objective.name=grpo"], ["objective.name=poly_epo", "objective.set_size=2"]])
def test_what_is_unknown_has_no_row_and_no_part_in_the_others(tmp_path: Path, objective: list[str]) -> None:
    keys = [*objective, OWN, "train.rollouts=8", "train.prompts_per_step=12", "reward.max_unknown=1"]
    run, step, groups = step_of(tmp_path, *keys)
    one = build(objective[0].partition("=")[2], **({"set_size": 2} if len(objective) > 1 else {}))
    left_out = 0
    for group, outcome, advantages in zip(groups, step.rewards, step.advantages, strict=True):
        unknown = np.array([rollout.seed % 10 == 3 for rollout in group.rollouts])
        np.testing.assert_array_equal(np.isnan(outcome), unknown)
        np.testing.assert_array_equal(np.isnan(advantages), unknown)
        left_out += unknown.sum()
        labels = None if group.labels is None else group.labels.ids[~unknown]
        # the objective of the k that are known, as if there had been no others
        np.testing.assert_allclose(advantages[~unknown], one.advantages(outcome[~unknown], labels), atol=1e-12)
    assert left_out > 3
    assert step.applied.metrics["unknown_rollouts"] == left_out
    assert step.applied.metrics["reward/part_seed"] == pytest.approx(
        np.mean([r.seed % 7 for g in groups for r in g.rollouts])
    )
    trained = sum(len(told) for told in run.learner.told if isinstance(told, list))
    assert trained == 12 * 8 - left_out
    column = RolloutFiles(LocalStore(tmp_path)).table(0).column("advantage")
    assert column.null_count == left_out


def half_unknown(problem: Problem, rollout: Rollout, verdict: Verdict) -> float | None:
    """Of problem p1 only one rollout is known."""
    return (
        None if problem.id == "p1" and rollout.seed != FIRST.setdefault("seed", rollout.seed) else float(verdict.passed)
    )


FIRST: dict[str, int] = {}


def test_a_group_with_too_few_known_is_left_out_as_a_whole_and_too_many_stop_the_run(tmp_path: Path) -> None:
    FIRST.clear()
    keys = ["train.prompts_per_step=32", f"reward.name={__name__}:half_unknown", "reward.max_unknown=1"]
    _, step, groups = step_of(tmp_path / "some", *keys)
    (whole,) = [np.isnan(a).all() for a, group in zip(step.advantages, groups, strict=True) if group.problem_id == "p1"]
    assert whole
    row = step.applied.metrics
    assert (row["unknown_groups"], row["unknown_rollouts"]) == (1, 3)
    with pytest.raises(
        RaypolyError, match=r"The outcome of \d+ of 16 rollouts is unknown, more than reward\.max_unknown"
    ):
        step_of(tmp_path / "none", f"reward.name={__name__}:always_unknown")


def always_unknown(problem: Problem, rollout: Rollout, verdict: Verdict) -> None:
    """It can't say."""


AWAY = {"times": 0}


def away_at_first(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    AWAY["times"] += 1
    if AWAY["times"] == 2:
        raise Away("its server can't be reached")
    return float(verdict.passed)


def passed_here(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    return float(verdict.passed)


def test_a_server_that_is_away_pauses_the_run_and_changes_nothing(tmp_path: Path) -> None:
    AWAY["times"] = 0
    _, step, _ = step_of(tmp_path / "away", f"reward.name={__name__}:away_at_first")
    _, whole, _ = step_of(tmp_path / "there", f"reward.name={__name__}:passed_here")
    _, ours, _ = step_of(tmp_path / "ours")
    assert step.applied.digest == whole.applied.digest == ours.applied.digest
    (pause,) = step.applied.metrics["pauses"]
    assert "can't be reached" in pause["reason"]


def test_one_rollout_without_a_verdict_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support import timed_services

    lost = set[str]()

    class Once(timed_services.TimedScorer):
        async def score(self, problem: Problem, suite: Any, codes: Sequence[str]) -> list[Verdict]:
            found = await super().score(problem, suite, codes)
            lost.update([codes[0]] if problem.id == "p3" and not lost else [])
            return [Verdict("infra", 0, 0, 0.0) if c in lost else v for c, v in zip(codes, found, strict=True)]

    monkeypatch.setattr(timed_services.TimedActors, "timed", Once)
    keys = ["objective.name=poly_epo", "objective.set_size=2", "train.prompts_per_step=32"]
    _, step, groups = step_of(tmp_path, *keys)
    for group, advantages in zip(groups, step.advantages, strict=True):
        unknown = [verdict.status == "infra" for verdict in group.verdicts or ()]
        assert np.isnan(advantages).tolist() == unknown
        assert group.labels is not None
        assert [identity == 0 for identity in group.labels.ids.tolist()] == unknown
    assert step.applied.metrics["unknown_rollouts"] == 1
    assert step.applied.metrics["set_aside"] == 0


def test_a_run_that_is_stopped_anywhere_ends_alike(tmp_path: Path) -> None:
    keys = (*BOTH, OWN, "reward.max_unknown=1", "train.rollouts=8")
    want = taken(open_virtual(tmp_path / "whole", (), keys, shared=False), count=2)
    for stop in (0, 4, 6, 8, 10, 12):  # the step commits 4 groups, their verdicts, and their rewards
        folder = tmp_path / f"stopped-{stop}"
        run_virtual(stopped_after(open_virtual(folder, (), keys, shared=False), stop))
        got = taken(open_virtual(folder, (), keys, shared=False), count=2)
        assert [step.applied.digest for step in got.steps] == [step.applied.digest for step in want.steps], stop
