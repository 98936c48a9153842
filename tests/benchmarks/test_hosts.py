"""`python -m benchmarks.hosts`: what it says where it can't run, and that its hosts are hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.driver_process import ROOT
from tests.support.ray_machines import Impossible
from tests.support.real_hosts import RealHosts

_LOOK = """
import json, os, ray, socket
ray.init(log_to_driver=False)

def look():
    return [socket.gethostname(), os.path.exists("/tmp/mark")]

print(json.dumps([look(), ray.get(ray.remote(look).options(num_cpus=1).remote())]))
"""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--faults=cut"], 2, "needs Linux, root and iproute2, to make namespaces: "),
        (["--faults=cut,flood"], 2, "no such fault: flood"),
    ],
)
def test_where_it_cannot_run_it_says_so(arguments: list[str], code: int, said: str) -> None:
    command = [sys.executable, "-m", "benchmarks.hosts", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": "/nowhere"}, capture_output=True, text=True)
    assert done.returncode == code
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.xdist_group("workflows")  # beside no other run with a Ray
def test_hosts_share_no_files_and_leave_nothing() -> None:
    try:
        with RealHosts(2, token=True, cpus=1) as hosts:
            hosts.restore()
            hosts.run(["touch", "/tmp/mark"])
            assert json.loads(hosts.run([sys.executable, "-c", _LOOK])) == [["host-a", True], ["host-b", False]]
            processes, bridge = list(hosts.head.pids), hosts.network.bridge
            assert hosts.hit("kill-raylet", "scorer", 0) is False, "there is no scorer"
            assert hosts.hit("lose-head", "scorer", 0)
            hosts.mend()
            assert json.loads(hosts.run([sys.executable, "-c", _LOOK])) == [["host-a", False], ["host-b", False]]
            processes += hosts.head.pids
    except Impossible as reason:
        pytest.skip(f"no hosts can be made here: {reason}")
    assert not [pid for pid in processes if Path(f"/proc/{pid}").exists()]
    links = subprocess.run(["ip", "-brief", "link"], check=True, capture_output=True, text=True).stdout
    assert not [name for name in (bridge, bridge.replace("rpc", "rpv")) if name in links]
    assert not list(Path("/run/netns").glob(f"{bridge}-*"))
