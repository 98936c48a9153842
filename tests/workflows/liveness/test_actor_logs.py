"""What actors wrote is kept where they fail to start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import ray

from raypoly.core.config import Config
from workflows.liveness.ray_output import ActorLogs
from workflows.startup.ray_cluster import connect_ray


@ray.remote(num_cpus=0)
class Engine:
    """Writes the reason of its failure, as vLLM does, and raises another error."""

    def start(self) -> None:
        print("loaded: 10 %\rloaded: 100 %")
        print("the root cause: no kernel for this GPU", file=sys.stderr, flush=True)
        raise ValueError("see the root cause above")


@ray.remote(num_cpus=0)
class Silent:
    def start(self) -> None:
        """Write nothing."""


@pytest.mark.usefixtures("joined")
def test_what_a_failed_actor_wrote_is_in_a_file_and_a_line_says_where(tmp_path: Path) -> None:
    notes: list[str] = []
    file = tmp_path / "actors.log"
    with connect_ray(Config(), "logs"):
        with ActorLogs(file, notes.append):
            ray.get(Silent.remote().start.remote())
        with pytest.raises(KeyboardInterrupt), ActorLogs(file, notes.append):
            raise KeyboardInterrupt
        with pytest.raises(ValueError, match="as it was given"), ActorLogs(file, notes.append):
            raise ValueError("as it was given")  # and no actor wrote anything
        assert (notes, file.exists()) == ([], False)
        with pytest.raises(ValueError, match="see the root cause above"), ActorLogs(file, notes.append):
            ray.get(Engine.remote().start.remote())
        with pytest.raises(ValueError, match="see the root cause"), ActorLogs(tmp_path / "no" / "log", notes.append):
            ray.get(Engine.remote().start.remote())
    assert notes == [f"What its actors wrote until they failed is in {file}"]
    told = file.read_text().splitlines()
    assert told[told.index("== Engine, err") + 1] == "the root cause: no kernel for this GPU"
    assert told[told.index("== Engine, out") + 1] == "loaded: 100 %"
