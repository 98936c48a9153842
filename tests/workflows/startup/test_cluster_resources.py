"""Where actors land on simulated clusters: cores for scorers, whole sets of GPUs, nodes that an autoscaler brings."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.cluster_utils import Cluster
from ray.util.placement_group import remove_placement_group

from actors import calls, ray_internals
from actors.scorer_pool import ScorerPool
from raypoly.core.config import Config, ScorerConfig
from raypoly.core.errors import RaypolyError
from raypoly.core.values import Problem, TestSuite
from tests.support.ports import free_port
from workflows.startup.ray_cluster import connect_ray, descendants, local_ray, scorer_options, why_closed
from workflows.startup.resources import reserve_resources

SPLIT = Config.model_validate({"generator": {"placement": "split", "engine": "transformers", "transport": "objects"}})
SPIN = "def f(n):\n    total = 0\n    for i in range(4_000_000):\n        total += i % 3\n    return n\n"
PATIENCE = 120.0


@ray.remote
class Somewhere:
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def test_a_run_gets_all_of_its_gpus_or_waits_for_all_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []

    async def two_runs() -> tuple[bool, list[Any]]:
        first = await reserve_resources(SPLIT, notes.append)
        second = asyncio.create_task(reserve_resources(SPLIT, notes.append))
        while not notes:
            await asyncio.sleep(0.1)
        assert first.group is not None
        waited = not second.done()
        remove_placement_group(first.group)
        return waited, [first.rank(0), first.engine(0), (await second).gpus]

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(calls, "NOTE_SECONDS", 0.5)
    with local_ray(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False):
        waited, (rank, engine, gpus) = asyncio.run(two_runs())
    assert waited
    assert gpus == 2
    assert rank["num_gpus"] == engine["num_gpus"] == 1.0
    assert notes[0] == (
        "Waiting for 2 free GPUs (generator.placement=split): of 2 GPUs in the cluster 0 are free. "
        "`ray status` shows who has them."
    )


def test_free_gpus_without_cpus_beside_them_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []

    async def wait() -> None:
        waiting = asyncio.create_task(reserve_resources(SPLIT, notes.append))
        while not notes:
            await asyncio.sleep(0.1)
        waiting.cancel()

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(calls, "NOTE_SECONDS", 0.5)
    with local_ray(num_cpus=0, num_gpus=2, include_dashboard=False, log_to_driver=False):
        asyncio.run(wait())
    assert notes[0].startswith("Waiting for 2 free GPUs, each on a node with ")
    assert " CPUs free (generator.placement=split): of 0 CPUs in the cluster 0 are free. " in notes[0]


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Cluster]:
    """Of 2, 4 and 4 CPUs; the driver is on that of two."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=4, object_store_memory=80 << 20)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture
def uneven(three_nodes: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("RAY_ADDRESS", three_nodes.address)
    return three_nodes


def test_scorers_take_every_core_but_one_of_the_drivers_node(uneven: Cluster) -> None:
    config = Config.model_validate({"scorer": {"workers": 8}})

    async def nodes() -> Counter[str]:
        reserved = await reserve_resources(config, print)
        small = [Somewhere.options(**reserved.engine(0)).remote(), Somewhere.options(**reserved.rank(0)).remote()]
        options = scorer_options(config.scorer, reserved.cpus)
        assert options["num_cpus"] == 1.0
        scorers = [Somewhere.options(**options).remote() for _ in range(8)]
        await asyncio.gather(*(each.node.remote() for each in small))
        return Counter(await asyncio.gather(*(each.node.remote() for each in scorers)))

    with connect_ray(config, "uneven"):
        found = asyncio.run(asyncio.wait_for(nodes(), PATIENCE))
        assert found[ray.get_runtime_context().get_node_id()] <= 1
        assert sorted(found.values()) == [1, 3, 4]
        assert not ray_internals.autoscales()


def test_scorers_leave_cores_of_a_node_with_a_gpu_to_its_engine(uneven: Cluster) -> None:
    placed = {"placement": "colocated", "engine": "transformers"}
    config = Config.model_validate({"scorer": {"workers": 14}, "generator": placed})
    added = uneven.add_node(num_cpus=10, num_gpus=1, object_store_memory=80 << 20)

    async def nodes() -> Counter[str]:
        reserved = await reserve_resources(config, print)
        assert reserved.engine(0)["num_cpus"] == config.scorer.spare_gpu_node == 4
        engine = Somewhere.options(**reserved.engine(0)).remote()
        options = scorer_options(config.scorer, reserved.cpus)
        assert options["num_cpus"] == 1.0
        scorers = [Somewhere.options(**options).remote() for _ in range(14)]
        assert await engine.node.remote() == added.node_id
        return Counter(await asyncio.gather(*(each.node.remote() for each in scorers)))

    with connect_ray(config, "uneven"):
        found = asyncio.run(asyncio.wait_for(nodes(), PATIENCE))
    assert found[added.node_id] == 5, "of ten cores four are the engine's, and a share of one the learner's"
    assert sorted(found.values()) == [1, 4, 4, 5]
    uneven.remove_node(added)


def test_demand_of_the_pool_and_of_a_run_starts_nodes_and_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own autoscaler, with the node type of cluster.yaml."""
    given = yaml.safe_load((Path(__file__).parents[3] / "cluster.yaml").read_text())["available_node_types"]
    scorers = {**given["cpu_scorer"], "resources": {"CPU": 4}, "node_config": {}}
    types = {"cpu_scorer": scorers, "gpu": {"resources": {"CPU": 2, "GPU": 1}, "max_workers": 2}}
    with autoscaling_cluster(types, head_cpus=given["gpu_head"]["resources"]["CPU"]) as address:
        monkeypatch.setenv("RAY_ADDRESS", address)
        with connect_ray(SPLIT, "autoscaled"):
            until = time.monotonic() + PATIENCE
            while not ray_internals.autoscales():  # not before the autoscaler's first look
                assert time.monotonic() < until
                time.sleep(0.2)
            asyncio.run(asyncio.wait_for(_grows_and_shrinks(), 2 * PATIENCE))
            notes: list[str] = []
            monkeypatch.setattr(calls, "NOTE_SECONDS", 1.0)
            found = asyncio.run(asyncio.wait_for(reserve_resources(SPLIT, notes.append), PATIENCE))
    assert found.placement.on_gpu
    assert "of 0 GPUs in the cluster 0 are free: an autoscaler may bring more" in notes[0]


async def _grows_and_shrinks() -> None:
    config = ScorerConfig(workers=1, max_workers=3, cpus=1.0, idle_seconds=2.0)
    pool = ScorerPool(config, scorer_options(config))
    problem = Problem("spin", "", "f", TestSuite("check", "def check(f):\n    assert f(3) == 3\n"))
    try:
        await pool.start()
        waits = asyncio.ensure_future(pool.score(problem, [f"{SPIN}# {i}" for i in range(200)]))
        await _until(lambda: pool.counts()["busy"] >= 2 or waits.done())
        assert not waits.done(), "no node came while programs waited"
        assert {verdict.status for verdict in await waits} == {"passed"}
        await _until(lambda: sum(pool.counts().values()) == 1)
    finally:
        pool.stop()
    await _until(lambda: sum(node["Alive"] for node in ray.nodes()) == 1)


async def _until(reached: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < until
        await asyncio.sleep(0.2)


_HEAD_ID = "f" * 51 + "00000"
"""What the fake provider takes for the head's node."""
_HEAD_TYPE = "ray.head.default"
_PATIENCE = 120.0


@contextmanager
def autoscaling_cluster(
    node_types: Mapping[str, Mapping[str, Any]], head_cpus: int = 1, idle_seconds: float = 5.0
) -> Iterator[str]:
    """A cluster with Ray's own autoscaler and simulated nodes (its fake node provider); the value for RAY_ADDRESS.

    `node_types`: as in a cluster file.
    """
    # AF_UNIX paths are short: Ray's sockets lie some 60 characters below this folder.
    with tempfile.TemporaryDirectory(prefix="rf-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder, address = Path(name), f"{ray.util.get_node_ip_address()}:{free_port()}"
        config = folder / "cluster.json"
        config.write_text(json.dumps(_config(node_types, address, head_cpus, idle_seconds)))
        process = subprocess.Popen(
            [
                *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block"),
                *(f"--port={address.partition(':')[2]}", f"--num-cpus={head_cpus}"),
                *(f"--temp-dir={folder}", f"--autoscaling-config={config}", "--include-dashboard=false"),
                *("--object-store-memory=80000000", "--num-gpus=0"),
            ],
            env=os.environ
            | {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
            | {"RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD_ID, "RAY_AUTH_MODE": "disabled"},
            stdout=(folder / "log").open("w"),
            stderr=subprocess.STDOUT,
        )
        try:
            until = time.monotonic() + _PATIENCE
            while why_closed(address):
                if process.poll() is not None or time.monotonic() > until:
                    raise RaypolyError(f"Ray did not start: {(folder / 'log').read_text()[-2000:]}")
                time.sleep(0.2)
            yield address
        finally:
            for pid in (*descendants(process.pid), process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def _config(
    node_types: Mapping[str, Mapping[str, Any]], address: str, head_cpus: int, idle_seconds: float
) -> dict[str, Any]:
    head = {"resources": {"CPU": head_cpus}, "node_config": {}, "max_workers": 0}
    return {
        "cluster_name": "simulated",
        "max_workers": 8,
        "upscaling_speed": 100.0,
        "idle_timeout_minutes": idle_seconds / 60,
        "provider": {"type": "fake_multinode", "gcs_address": address}
        | dict.fromkeys(
            ("use_node_id_as_ip", "disable_node_updaters", "disable_launch_config_check", "foreground_node_launch"),
            True,
        ),
        "auth": {"ssh_user": "nobody", "ssh_private_key": "/dev/null"},
        "available_node_types": {name: {"node_config": {}, **given} for name, given in node_types.items()}
        | {_HEAD_TYPE: head},
        "head_node_type": _HEAD_TYPE,
        "file_mounts": {},
        "cluster_synced_files": [],
        "initialization_commands": [],
        **{f"{kind}setup_commands": [] for kind in ("", "head_", "worker_")},
        **{f"{kind}_start_ray_commands": [] for kind in ("head", "worker")},
    }
