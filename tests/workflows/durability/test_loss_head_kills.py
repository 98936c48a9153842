"""A real run whose loss has a head, killed before its first checkpoint and after it: the same command ends alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import safe_open

from raypoly.learner.policy_model import HEAD_PREFIX
from tests.support.local_driver import LocalDriver, run_killed_driver
from tests.support.ray_machines import Machines

FLOWRL = ("objective.name=flowrl", "loss.name=flowrl", "train.steps=3")


@pytest.mark.slow
def test_a_run_with_a_trained_head_that_is_killed_twice_ends_bit_identical(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    """The first start again draws the head from the seed and replays; the second takes it from a checkpoint."""
    overrides = [*small_run, *FLOWRL]
    undisturbed = LocalDriver(tmp_path / "undisturbed", overrides, {"RAY_ADDRESS": machines.address})
    assert undisturbed.finish() == 0, undisturbed.log()
    assert len(set(undisturbed.digests())) == 3, "training must change the weights"
    hit = run_killed_driver(machines, undisturbed, tmp_path / "hit", overrides, after=(11, 19))
    assert head(hit.folder) == head(undisturbed.folder)


def head(folder: Path) -> dict[str, list[float]]:
    """The newest checkpoint's, by name."""
    (file,) = sorted((folder / "checkpoints").iterdir())[-1].glob("loss_head-*.safetensors")
    with safe_open(file, "pt") as opened:
        found = {name: opened.get_tensor(name).flatten().tolist() for name in opened.keys()}  # noqa: SIM118
    assert found
    assert all(name.startswith(HEAD_PREFIX) for name in found)
    return found
