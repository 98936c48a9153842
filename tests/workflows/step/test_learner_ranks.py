"""A run whose learner is two processes, one of which is killed, and one that goes on with another number of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.local_driver import LocalDriver
from tests.support.ray_machines import Machines

pytestmark = pytest.mark.slow


def driver(folder: Path, machines: Machines, small_run: list[str], *overrides: str) -> LocalDriver:
    return LocalDriver(folder, [*small_run, *overrides], {"RAY_ADDRESS": machines.address})


def test_run_that_loses_a_rank_ends_with_the_weights_of_the_undisturbed_one(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    whole = driver(tmp_path / "whole", machines, small_run, "train.ranks=2")
    assert whole.finish() == 0, whole.log()
    hit = driver(tmp_path / "hit", machines, small_run, "train.ranks=2")
    hit.start()
    assert hit.wait_for_commits(18), hit.log()
    assert machines.kill_actor("learner")
    assert hit.finish() == 0, hit.log()
    assert hit.log().count("The learner was lost (its process died") == 1, hit.log()
    assert hit.digests() == whole.digests()
    assert hit.weights() == whole.weights()
    assert [row["learner_ranks"] for row in whole.rows()] == [2] * 5
    manifest = json.loads((whole.folder / "checkpoints" / "step-000004" / "manifest.json").read_text())
    assert {entry["rank"] for entry in manifest["files"].values() if "rank" in entry} == {0, 1}


def test_run_goes_on_with_another_number_of_ranks_from_its_checkpoint_and_replays_the_rest(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    run = driver(tmp_path / "run", machines, small_run, "train.steps=3", "train.ranks=2", "train.checkpoint_every=2")
    assert run.finish() == 0, run.log()
    more = driver(tmp_path / "run", machines, small_run, "train.steps=4", "train.ranks=1")
    assert more.finish() == 0, more.log()
    assert len(set(more.digests())) == 4
    assert [row.get("learner_ranks", 1) for row in more.rows()] == [2, 2, 2, 1]
