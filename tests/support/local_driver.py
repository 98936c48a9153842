"""Short real runs in local folders, for tests that kill them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from raypoly import Run
from tests.support.driver_process import ROOT, SMALL, Driver
from tests.support.kill_plan import COMMITS_A_STEP
from tests.support.ray_machines import Machines
from tests.support.run_differences import run_differences, weights_hash

__all__ = ["ROOT", "SMALL", "LocalDriver", "run_killed_driver", "wait_for"]


class LocalDriver(Driver):
    """A driver whose run is in a local folder. Its log is beside the folder."""

    def __init__(self, folder: Path, overrides: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        super().__init__(str(folder), folder.with_suffix(".log"), overrides, dict(environment or {}))
        self.folder = folder

    def wait_for_commits(self, count: int, timeout: float = 900) -> bool:
        """Wait until the run has `count` commits (see `commits`). Returns False if it ended before."""
        assert self.process is not None
        until = time.monotonic() + timeout
        while self.process.poll() is None:
            if self.commits() >= count:
                return True
            if time.monotonic() > until:
                raise TimeoutError(f"{self.folder} has {self.commits()} commits after {timeout} s: {self.log()}")
            time.sleep(0.005)
        return False

    def commits(self) -> int:
        """A count of commits that only grows: a finished step counts as the most commits that a step has."""
        rollouts = len(list(self.folder.glob("rollouts/step-*.parquet")))
        return COMMITS_A_STEP * rollouts + len(list(self.folder.glob("journal/*/*.arrow")))

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return summary

    def weights(self) -> str:
        """SHA-256 of the final weights' file."""
        return weights_hash(Run(self.folder))

    def rows(self) -> list[dict[str, Any]]:
        """metrics.jsonl, one row a step."""
        rows = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows] == list(range(len(rows)))
        return rows

    def digests(self) -> list[str]:
        """The digest of the weights after each step."""
        return [row["weight_digest"] for row in self.rows()]


def run_killed_driver(
    machines: Machines,
    whole: LocalDriver,
    folder: Path,
    overrides: Sequence[str],
    after: Sequence[int],
    environment: Mapping[str, str] | None = None,
) -> LocalDriver:
    """A run like `whole`, which has ended: killed whenever it has so many commits, and then it ends."""
    hit = LocalDriver(folder, overrides, environment or {"RAY_ADDRESS": machines.address})
    for commits in after:
        hit.start()
        assert hit.wait_for_commits(commits), hit.log()
        hit.kill()
        machines.wait_until_idle()
    assert hit.finish() == 0, hit.log()
    assert run_differences(Run(hit.folder), Run(whole.folder)) == []
    return hit


def wait_for(condition: Callable[[], bool], seconds: float = 900) -> None:
    """Wait until `condition()` is true. Fails after `seconds`."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.05)
