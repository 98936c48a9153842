"""The same command, typed again with more steps and with other values."""

from pathlib import Path

import pytest

from tests.support.local_driver import LocalDriver
from tests.support.ray_machines import Machines


def test_a_killed_and_extended_run_decays_over_the_steps_of_its_first_start(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    """The kill is behind the checkpoint of step 2, so that a step is replayed at its own rate."""
    overrides = [*small_run, "train.schedule=cosine", "train.warmup_steps=1", "train.checkpoint_every=2"]
    shared = {"RAY_ADDRESS": machines.address}
    whole = LocalDriver(tmp_path / "whole", [*overrides, "train.schedule_steps=4"], shared)
    assert whole.finish() == 0, whole.log()
    short = LocalDriver(tmp_path / "run", [*overrides, "train.steps=4"], shared)
    short.start()
    assert short.wait_for_commits(27), short.log()
    short.kill()
    machines.wait_until_idle()
    more = LocalDriver(tmp_path / "run", overrides, shared)
    assert more.finish() == 0, more.log()
    assert (more.digests(), more.weights()) == (whole.digests(), whole.weights())
    rates = [row["lr"] for row in more.rows()]
    assert rates == pytest.approx([3e-4, 3e-4, 2.25e-4, 0.75e-4, 0.75e-4])
    refused = LocalDriver(tmp_path / "run", [*overrides, "train.schedule_steps=5"])
    assert refused.finish() == 2
    assert "train.schedule_steps is 5 now and was 4" in refused.log()
