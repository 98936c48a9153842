"""A Ray cluster with Ray's own autoscaler, whose nodes are simulated on this machine (its fake node provider).

with autoscaling_cluster({"scorers": {"resources": {"CPU": 4}, "max_workers": 2}}) as address:
    ...                                             # demand for CPUs starts nodes; idle ones go after some seconds
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray

from raypoly.core.errors import RaypolyError
from tests.support.ports import free_port
from workflows.startup.ray_cluster import descendants, why_closed

_HEAD_ID = "f" * 51 + "00000"
"""What the fake provider takes for the head's node."""
_HEAD_TYPE = "ray.head.default"
_PATIENCE = 120.0


@contextmanager
def autoscaling_cluster(
    node_types: Mapping[str, Mapping[str, Any]], head_cpus: int = 1, idle_seconds: float = 5.0
) -> Iterator[str]:
    """Inside, the cluster runs; the value for RAY_ADDRESS. `node_types`: as in a cluster file."""
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
