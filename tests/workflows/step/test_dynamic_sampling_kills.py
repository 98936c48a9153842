"""A real run that takes further problems, killed while it does: the same command ends at the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.local_driver import LocalDriver, run_killed_driver
from tests.support.ray_machines import Machines

REFILL = ("train.refill=3",)


@pytest.mark.slow
def test_a_run_with_refills_that_is_killed_three_times_ends_bit_identical(
    machines: Machines, small_run: list[str], tmp_path: Path
) -> None:
    overrides = [*small_run, *REFILL]
    undisturbed = LocalDriver(tmp_path / "undisturbed", overrides, {"RAY_ADDRESS": machines.address})
    assert undisturbed.finish() == 0, undisturbed.log()
    rows = undisturbed.rows()
    assert any(row["refilled"] for row in rows), "no group was without a gradient: there is nothing to be killed in"
    assert len(set(undisturbed.digests())) > 2, "training must change the weights"
    hit = run_killed_driver(machines, undisturbed, tmp_path / "hit", overrides, after=(5, 14, 27))
    for name in ("refilled", "problems_taken"):
        assert [row[name] for row in hit.rows()] == [row[name] for row in rows]
