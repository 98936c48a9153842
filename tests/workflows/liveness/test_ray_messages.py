"""A node that is lost is one line of a job's log; what Ray says of it is in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
from ray._private.utils import publish_error_to_driver

from raypoly.core.config import Config
from tests.support.local_driver import wait_for
from tests.support.ray_machines import Machines
from workflows.liveness.ray_output import RayMessages
from workflows.startup.ray_cluster import connect_ray


@ray.remote
class Scorer:
    """By its name the machines find the node that it is on."""

    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def test_a_lost_node_is_one_line_and_its_dump_is_in_the_file(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", machines.address)
    notes: list[str] = []
    file = tmp_path / "ray.log"
    with connect_ray(Config(), "messages"), RayMessages(file, notes.append):
        scorer = Scorer.remote()
        node = ray.get(scorer.node.remote())
        assert machines.kill_node("scorer")
        wait_for(lambda: bool(notes))
        # the node's agent would send a dump, where it outlives its raylet by long enough
        dump = "Raylet is terminated. Termination is unexpected.\n    state-dump: 9"
        publish_error_to_driver("raylet_died", dump, ray._private.worker.global_worker.gcs_client)
        wait_for(lambda: "state-dump: 9" in file.read_text())
    assert len(notes) == 1
    assert notes[0].startswith("Ray lost the node ")
    assert notes[0].endswith(f"; what ran there starts again. Its report is in {file}.")
    assert node in file.read_text()
    assert "raylet" not in capfd.readouterr().out


def test_an_error_that_ends_a_traceback_is_in_the_line(tmp_path: Path) -> None:
    notes: list[str] = []
    told = "The autoscaler failed with the following error:\nTraceback (most recent call last):\n  ...\nOSError: gone\n"
    with RayMessages(tmp_path / "ray.log", notes.append):
        ray._private.worker.print_to_stdstream({"lines": [told]}, ignore_prefix=False)
    said = "The autoscaler failed with the following error: OSError: gone"
    assert notes == [f"Ray says: {said}. Its report is in {tmp_path}/ray.log."]


def test_a_full_disk_loses_no_line(tmp_path: Path) -> None:
    notes: list[str] = []
    with RayMessages(tmp_path / "missing" / "ray.log", notes.append):
        ray._private.worker.print_to_stdstream({"lines": ["No node has 9 CPUs.\nMore."]}, ignore_prefix=False)
    assert notes == [f"Ray says: No node has 9 CPUs. Its report is in {tmp_path}/missing/ray.log."]
