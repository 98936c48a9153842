"""Real runs that are killed in what they do beside sampling and scoring: the same command ends at the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raypoly import Run
from tests.support.local_driver import LocalDriver, run_killed_driver
from tests.support.ray_machines import Machines

AHEAD = ("train.ahead=1", "loss.importance_cap=2", "train.steps=3")
UPSKILL = ("objective.name=upskill", "objective.skills=2", "train.steps=2")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "after", "same"),
    [
        pytest.param(("train.refill=3",), (5, 14, 27), ("refilled", "problems_taken"), id="further problems"),
        pytest.param(AHEAD, (3, 9, 18), ("staleness", "stale_tokens"), id="a step ahead"),
        pytest.param(UPSKILL, (2, 7, 11), ("objective/mi_reward",), id="log-probabilities"),
    ],
)
def test_a_run_that_is_killed_three_times_ends_bit_identical(
    machines: Machines,
    small_run: list[str],
    tmp_path: Path,
    own: tuple[str, ...],
    after: tuple[int, ...],
    same: tuple[str, ...],
) -> None:
    overrides = [*small_run, *own]
    undisturbed = LocalDriver(tmp_path / "undisturbed", overrides, {"RAY_ADDRESS": machines.address})
    assert undisturbed.finish() == 0, undisturbed.log()
    rows = undisturbed.rows()
    assert len(set(undisturbed.digests())) >= 2, "training must change the weights"
    if own == UPSKILL:
        check_log_probabilities(Run(undisturbed.folder))
    elif own == AHEAD:
        assert [row["staleness"] for row in rows] == [0, 1, 1]
    else:
        assert any(row["refilled"] for row in rows), "no group was without a gradient: there is nothing to be killed in"
    hit = run_killed_driver(machines, undisturbed, tmp_path / "hit", overrides, after=after)
    for name in same:
        assert [row[name] for row in hit.rows()] == [row[name] for row in rows]


def check_log_probabilities(run: Run) -> None:
    """The learner's, of each response after its own prompt, are the sampler's."""
    for group in run.completed(0).groups:
        cross = group.cross_logprobs
        assert cross is not None
        assert len({rollout.prompt_tokens.tobytes() for rollout in group.rollouts}) == 2
        for rollout, own, logp_PT in zip(group.rollouts, cross.own_prompt, cross.logprobs, strict=True):
            np.testing.assert_allclose(logp_PT[own], rollout.logprobs, atol=1e-3)
