"""The row of a step tells what was measured of its loss, and null for what was not."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from raypoly.metrics.sinks import flatten
from raypoly.policy.update_stats import LossStats, UpdateStats
from raypoly.values import Group
from workflows.step.learner_session import TrainingGroup
from workflows.step.step_metrics import JudgeNumbers, metrics_row
from workflows.step.stopwatch import Waterfall


def row(measured: LossStats, groups: Sequence[TrainingGroup] = ()) -> dict[str, Any]:
    stats = UpdateStats(1, "digest", 0.1, 0.5, False, math.nan, 0, 0, measured, 3e-4)
    times = Waterfall({"total": 1.0}, dict.fromkeys(("judge", "score"), 0.25), {"seconds": None, "exposed": None})
    return metrics_row(0, groups, stats, times, [], 0.0, JudgeNumbers({}, None, None, None, None))


def test_what_was_measured_of_the_loss_is_in_the_row() -> None:
    found = row(LossStats(mismatch_max=0.25, mismatch_k3=0.01, importance_ess=0.97, ratio_clipped_low=0.0))
    assert (found["mismatch_max"], found["mismatch_k3"], found["importance_ess"]) == (0.25, 0.01, 0.97)
    assert found["ratio_clipped_low"] == 0.0
    assert found["ratio_clipped_high"] is None
    assert found["kl_reference"] is None


def test_a_step_of_which_nothing_is_known_is_json_without_a_number_for_it() -> None:
    found = json.loads(json.dumps(row(LossStats()), allow_nan=False))
    assert {found[name] for name in vars(LossStats())} == {None}
    assert found["entropy"] is None


def test_a_step_without_generation_has_an_unknown_tail_and_no_zero_for_it() -> None:
    found = json.loads(json.dumps(row(LossStats())))
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
