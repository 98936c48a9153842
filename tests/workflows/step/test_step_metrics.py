"""The row of a step tells what was measured of its loss, and null for what was not."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from raypoly.core.values import WITHOUT_TESTS, Group, Labels, Rollout, Verdict
from raypoly.learner.update_stats import LossStats, UpdateStats
from raypoly.run.sinks import flatten
from workflows.step.seal_step import metrics_row
from workflows.step.stopwatch import Waterfall
from workflows.step.training_group import TrainingGroup

NO_TOKENS = np.zeros(0, np.int32)


def row(measured: LossStats, groups: Sequence[TrainingGroup] = ()) -> dict[str, Any]:
    stats = UpdateStats(1, "digest", 0.1, 0.5, False, math.nan, 0, 0, measured, 3e-4)
    times = Waterfall({"total": 1.0}, dict.fromkeys(("judge", "score"), 0.25), {"seconds": None, "exposed": None})
    return metrics_row(0, groups, stats, times, [], 0.0, {})


def test_what_was_measured_of_the_loss_is_in_the_row() -> None:
    found = row(LossStats(mismatch_max=0.25, mismatch_k3=0.01, importance_ess=0.97, ratio_clipped_low=0.0))
    assert (found["mismatch_max"], found["mismatch_k3"], found["importance_ess"]) == (0.25, 0.01, 0.97)
    assert found["ratio_clipped_low"] == 0.0
    assert found["ratio_clipped_high"] is None
    assert found["kl_reference"] is None


def test_a_step_of_which_nothing_is_known_or_generated_is_json_without_a_number_for_it() -> None:
    found = json.loads(json.dumps(row(LossStats()), allow_nan=False))
    assert {found[name] for name in vars(LossStats())} == {None}
    assert found["entropy"] is None
    assert found["tail"] == {"seconds": None, "exposed": None}
    assert found["exposed"] == {"judge": 0.25, "score": 0.25}
    assert not {"tail/seconds", "tail/exposed"} & flatten(found).keys()
    assert found["tokens_per_second"] is None


def test_a_measure_is_the_mean_over_the_groups_that_have_it() -> None:
    def trained(**measures: float) -> TrainingGroup:
        return TrainingGroup(Group(0, 0, "p", ()), np.zeros(1), np.zeros(1), measures)

    found = row(LossStats(), [trained(mi=1.0, often=3.0), trained(often=6.0), trained(mi=2.0), trained()])
    assert {name: value for name, value in found.items() if name.startswith("objective/")} == {
        "objective/mi": 1.5,
        "objective/often": 4.5,
    }
    assert list(flatten(found))[-2:] == ["objective/mi", "objective/often"]


def test_a_row_says_how_programs_are_written_what_right_ones_cost_and_what_the_judge_told_apart() -> None:
    texts = ["a = 1  # one", "b = 1", "never read # as only two of a group are", ""]
    rollouts = tuple(
        Rollout(NO_TOKENS, np.zeros(3, np.int32), np.zeros(3, np.float32), text, "stop", 1, 0) for text in texts
    )
    verdicts = tuple(Verdict(status, 1, 1, 0.25) for status in ("passed", "passed", "passed", "no_code"))
    labels = Labels(np.array([1, 2, 1, 0], np.int32), np.array([False, False, False, True]), "mine")
    unlabelled = Group(0, 0, "p", rollouts, {"score": verdicts})
    group = unlabelled.with_findings(judge=labels)
    rewards, advantages = np.array([1.0, 1.0, 1.0, 0.0]), np.array([0.25, 0.25, 0.25, -0.75])
    found = row(LossStats(), [TrainingGroup(each, rewards, advantages) for each in (group, unlabelled)])
    assert found["strategies_correct_judged"] == 2
    assert found["response_length"] == 3
    assert found["comment_share"] == (4 / 7 + 0) / 2
    assert found["identifier_length"] == 1
    assert found["correct_cpu_seconds"] == 0.25
    assert found["advantage_variance"] == advantages.var()


def test_what_tests_or_labels_would_say_is_unknown_without_them_and_not_zero() -> None:
    rollout = Rollout(NO_TOKENS, np.zeros(3, np.int32), np.zeros(3, np.float32), "7", "stop", 1, 0)
    labels = Labels(np.array([1, 2], np.int32), np.array([False, False]), "mine")
    untested = Group(0, 0, "p", (rollout, rollout), {"score": (WITHOUT_TESTS, WITHOUT_TESTS)})
    rewards, advantages = np.array([1.0, 0.0]), np.array([0.5, -0.5])
    answered = TrainingGroup(untested.with_findings(judge=labels), rewards, advantages)
    assert row(LossStats(), [answered])["strategies_correct_judged"] is None
    unjudged = TrainingGroup(untested, rewards, np.zeros(2), valued=False)
    assert row(LossStats(), [answered, unjudged])["advantage_variance"] == 0.25


def test_strategies_of_a_step_of_plans_alone_are_unknown_and_not_zero() -> None:
    none = np.zeros(0)
    alone = TrainingGroup(Group(0, 0, "p", ()), none, none)
    assert row(LossStats(), [alone])["strategies_correct"] is None
    attempt = Rollout(NO_TOKENS, NO_TOKENS, np.zeros(0, np.float32), "", "stop", 1, 0)
    failed = Group(0, 1, "q", (attempt,), {"score": (Verdict("wrong", 0, 1, 0.25),)})
    assert row(LossStats(), [alone, TrainingGroup(failed, none, none)])["strategies_correct"] == 0.0
