"""Nodes whose files are their own: what a run does where the model's folder lies on the driver's machine alone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster

from actors import model_files
from actors.model_files import ModelFiles
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.settings import load
from tests.support.local_driver import SMALL, LocalDriver, wait_for
from workflows.doctor.machine import examine_machine
from workflows.startup.ray_cluster import connect_ray, descendants

MOUNTS = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the node below does not see."""
    folder = tmp_path_factory.mktemp("hosts") / "hidden"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def cluster(hidden: Path) -> Iterator[Cluster]:
    """The driver's node has no CPU. The other has a mount namespace of its own, where `hidden` is empty."""
    tried = subprocess.run([*MOUNTS, f"mount -t tmpfs none {hidden}"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this machine makes no mount namespaces: {tried.stderr.strip()}")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    start = f"{Path(sys.executable).with_name('ray')} start --address={cluster.address} --num-cpus=4 --block"
    command = f"mount -t tmpfs none {hidden} && exec {start} --object-store-memory=80000000"
    log = hidden.with_name("node.log")
    environment = {**os.environ, "RAYPOLY_CACHE": str(hidden / "own")}
    node = subprocess.Popen([*MOUNTS, command], stdout=log.open("w"), stderr=subprocess.STDOUT, env=environment)
    try:
        wait_for(lambda: node.poll() is not None or "Ray runtime started" in log.read_text())
        assert node.poll() is None, log.read_text()
        yield cluster
    finally:
        for pid in (*descendants(node.pid), node.pid):
            os.kill(pid, signal.SIGKILL)
        node.wait()
        cluster.shutdown()


def test_a_run_starts_where_the_models_folder_is_not(cluster: Cluster, hidden: Path, tmp_path: Path) -> None:
    """The warm start, too, has no CPU on the driver's node: it runs on the other, and its model comes back."""
    overrides = [*SMALL, "train.steps=1", "warm_start.steps=4", "generator.engine=transformers"]
    environment = {"RAY_ADDRESS": cluster.address, "RAYPOLY_CACHE": str(hidden / "cache")}
    driver = LocalDriver(tmp_path / "run", overrides, environment)
    assert driver.finish() == 0, driver.log()
    assert "warm start: step 4 of 4" in driver.log()
    assert list((hidden / "cache" / "warm-start").glob("*/model.safetensors"))


def test_a_run_folder_that_the_learners_node_does_not_see_is_told_at_the_start(
    cluster: Cluster, hidden: Path, warm_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = [*SMALL, f"model.path={warm_model}", "generator.engine=transformers"]
    driver = LocalDriver(hidden / "run", overrides, {"RAY_ADDRESS": cluster.address})
    assert driver.finish() == UsageError.exit_code
    said = f"does not see {hidden / 'run'} and could write no checkpoint: give a run.dir that all machines share"
    assert re.search(rf"^Node \S+, where the learner started, {re.escape(said)}", driver.log(), re.MULTILINE)
    assert "Traceback" not in driver.log()
    assert driver.commits() == 0, "nothing was trained before"

    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    for folder, seen in ((hidden / "run", False), (hidden.with_name("seen") / "run", True)):
        found = {each.what: each for each in examine_machine(load(None, [*overrides, f"run.dir={folder}"]))}
        (finding,) = [each for what, each in found.items() if what.startswith("run.dir on ")]
        assert (finding.ok, f"does not see {folder}: give" in finding.detail) == (seen, not seen)
    assert not list(hidden.glob(".raypoly-doctor*"))


@pytest.mark.usefixtures("joined")
def test_a_small_folder_is_sent_and_a_large_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    (folder / "parts").mkdir(parents=True)
    for name in ("config.json", "parts/weights"):
        (folder / name).write_text(name)
    monkeypatch.setenv("RAYPOLY_CACHE", str(tmp_path / "cache"))
    with connect_ray(Config(), "files"):
        small = ModelFiles(folder).with_copy()
        monkeypatch.setattr(model_files, "SENT_BYTES", 10)
        large = ModelFiles(folder).with_copy()
        assert small.here() == large.here() == folder
        shutil.rmtree(folder)
        found = small.here()
        assert found == small.here() != folder
        assert {name: (found / name).read_text() for name in ("config.json", "parts/weights")} == {
            "config.json": "config.json",
            "parts/weights": "parts/weights",
        }
        with pytest.raises(UsageError, match=rf"folder {folder} is not on node {ray.util.get_node_ip_address()}, and"):
            large.here()
