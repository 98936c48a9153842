"""One small Ray for all actor tests."""

import shutil
import tempfile
from collections.abc import Iterator

import pytest

from workflows.startup.ray_cluster import local_ray

ACTOR_OPTIONS = {"num_cpus": 0.01}
"""Small enough for every actor of a run on two cores."""


@pytest.fixture(scope="package", autouse=True)
def _a_ray_of_its_own() -> Iterator[None]:
    """Two cores, and two GPUs by Ray's count alone."""
    # a short path: Ray puts sockets below it, and their paths may have 107 characters
    folder = tempfile.mkdtemp(prefix="rp-", dir="/tmp")
    with local_ray(
        num_cpus=2,
        num_gpus=2,
        include_dashboard=False,
        _temp_dir=folder,
        namespace="actor-tests",
        log_to_driver=False,
        object_store_memory=256 * 2**20,
    ):
        yield
    shutil.rmtree(folder, ignore_errors=True)
