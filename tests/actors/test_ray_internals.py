"""Each private name of Ray that raypoly uses does what raypoly needs of it."""

import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.support.local_driver import wait_for
from tests.workflows.liveness.test_shutdown import title
from workflows.startup.ray_cluster import descendants

DRIVER = """
import asyncio, json, os, sys
from actors import ray_internals
from workflows.startup.ray_cluster import local_ray
import ray
from ray.dashboard.modules.job.common import JobInfo, JobInfoStorageClient
os.environ.pop("RAY_AUTH_MODE", None)
async def told(job):
    storage = JobInfoStorageClient(ray._private.worker.global_worker.gcs_client)
    await ray_internals.tell_job(job, {"step": "0"}, "of no job that is known")
    assert await storage.get_info(job) is None
    for status in ("RUNNING", "SUCCEEDED"):
        await storage.put_info(job, JobInfo(status, "python", metadata={"owner": "me"}, driver_node_id="here"))
        await ray_internals.tell_job(job, {"step": "1 of 2"}, "step 1/2")
        info = await storage.get_info(job)
        ours = {"step": "1 of 2"} if status == "RUNNING" else {}
        assert info.metadata == {"owner": "me", **ours}, info
        assert (info.message == "step 1/2", info.status, info.driver_node_id) == (bool(ours), status, "here"), info
with local_ray(num_cpus=1, include_dashboard=True, _temp_dir=sys.argv[1], log_to_driver=False):
    @ray.remote(num_cpus=0)
    class Named:
        def id(self): return ray.get_runtime_context().get_actor_id()
    named = Named.remote()
    assert ray_internals.actor_id(named) == ray.get(named.id.remote())
    assert os.path.exists(ray_internals.raylet_socket())
    job = {"runtime_env": {"working_dir": "there"}, "metadata": {"job_submission_id": "a-job"}}
    os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"] = json.dumps(job)
    assert (ray_internals.job_runtime_env(), ray_internals.submission_id()) == (job["runtime_env"], "a-job")
    asyncio.run(told("a-job"))
    print(ray_internals.dashboard_address(), flush=True)
    sys.stdin.readline()
    ray_internals.kill_own_node()
    sys.stdin.readline()
"""
ENDED = """
from actors import ray_internals
import ray
ray_internals.never_start_by_itself()
try:
    ray.get(ray.put(1))
except ray.exceptions.RaySystemError:
    print(ray.is_initialized())
"""


@pytest.fixture
def folder() -> Iterator[str]:
    """Ray's sockets need a short path."""
    with tempfile.TemporaryDirectory(prefix="rp-", dir="/tmp", ignore_cleanup_errors=True) as found:
        yield found


def test_private_names_of_ray_do_what_is_needed(folder: str) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    try:
        address = driver.stdout.readline().strip()
        assert address, "the driver failed: its message is above"
        url = address if address.startswith("http") else f"http://{address}"
        with pytest.raises(HTTPError, match="Unauthorized"):  # it answers, and asks for the token
            urllib.request.urlopen(f"{url}/api/version", timeout=60)
        ours = {pid for pid in descendants(driver.pid) if os.path.basename(title(pid)) in ("gcs_server", "raylet")}
        assert len(ours) == 2
        driver.stdin.write("\n")
        driver.stdin.flush()
        wait_for(lambda: not [pid for pid in ours if title(pid)])
    finally:
        driver.kill()
        driver.wait()


def test_without_a_connection_no_call_makes_one() -> None:
    assert subprocess.check_output([sys.executable, "-c", ENDED], text=True).split() == ["False"]


def test_no_other_module_uses_a_private_name_of_ray() -> None:
    root = Path(__file__).parents[2]
    own = root / "actors" / "ray_internals.py"
    files = [path for room in ("raypoly", "actors", "workflows") for path in (root / room).rglob("*.py") if path != own]
    private = re.compile(r"\bray\._(?!_)|\b_actor_id\b|\bray\.(?:experimental|autoscaler)\b")
    assert [str(path) for path in files if private.search(path.read_text())] == []
