"""A real run whose rollouts have skills, killed before, within and after the learner is asked about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raypoly import Run
from tests.support.local_driver import LocalDriver, run_killed_driver
from tests.support.ray_machines import Machines

UPSKILL = ("objective.name=upskill", "objective.skills=2", "train.steps=2")


@pytest.mark.slow
def test_a_run_with_skills_that_is_killed_three_times_ends_bit_identical(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    overrides = [*small_run, *UPSKILL]
    undisturbed = LocalDriver(tmp_path / "undisturbed", overrides, {"RAY_ADDRESS": machines.address})
    assert undisturbed.finish() == 0, undisturbed.log()
    rows, run = undisturbed.rows(), Run(undisturbed.folder)
    assert len(set(undisturbed.digests())) == 2, "training must change the weights"
    for group in run.completed(0).groups:
        cross = group.cross_logprobs
        assert cross is not None
        assert len({rollout.prompt_tokens.tobytes() for rollout in group.rollouts}) == 2
        for rollout, own, logp_PT in zip(group.rollouts, cross.own_prompt, cross.logprobs, strict=True):
            np.testing.assert_allclose(logp_PT[own], rollout.logprobs, atol=1e-3)
    hit = run_killed_driver(machines, undisturbed, tmp_path / "hit", overrides, after=(2, 7, 11))
    assert [row["objective/mi_reward"] for row in hit.rows()] == [row["objective/mi_reward"] for row in rows]
