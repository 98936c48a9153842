"""`python -m benchmarks.chaos` in its short form, and that it would find what it looks for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from raypoly import Run
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.step_records import Generated, encode
from tests.support.commit_watcher import CommitWatcher
from tests.support.kill_plan import KINDS, kill_plans
from tests.support.local_driver import ROOT
from tests.support.run_differences import run_differences
from tests.support.sample_groups import make_group

pytestmark = pytest.mark.xdist_group("workflows")  # beside no other run with a Ray
KILLS = "driver,node,partition"


@pytest.fixture(scope="module")
def chaos(warm_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an undisturbed run and one that was hit three times."""
    folder = tmp_path_factory.mktemp("chaos")
    command = [sys.executable, "-m", "benchmarks.chaos", "--kills=3", "--a-run=3", f"--kinds={KILLS}", "--seed=3"]
    done = subprocess.run(
        [*command, f"--model={warm_model}", f"--keep={folder}", f"--json={folder / 'outcomes.json'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr + "".join(log.read_text() for log in folder.glob("*.log"))
    assert "1 runs, 1 equal to the undisturbed one, 0 not" in done.stdout
    return folder


@pytest.mark.slow
def test_run_that_loses_driver_node_and_network_ends_bit_identical(chaos: Path) -> None:
    assert run_differences(Run(chaos / "run-1"), Run(chaos / "run-0")) == []
    whole, hit = json.loads((chaos / "outcomes.json").read_text())
    assert sum(whole["struck"].values()) == 0
    assert sum(hit["struck"].values()) == 3
    assert hit["struck"].keys() <= set(KILLS.split(","))


@pytest.mark.slow
def test_a_run_that_differs_is_told(chaos: Path, tmp_path: Path) -> None:
    for name, change in {
        "the final weights differ": "model/model.safetensors",
        "the weights differ from step": "metrics.jsonl",
        "step 0 counts the verdicts": "metrics.jsonl",
        "there are rollouts of steps": "rollouts/step-000002.parquet",
    }.items():
        copy = tmp_path / name.replace(" ", "-")
        shutil.copytree(chaos / "run-1", copy)
        path = copy / change
        if path.suffix == ".parquet":
            path.unlink()
        elif path.suffix == ".jsonl":
            rows = path.read_text().replace('"weight_digest": "', '"weight_digest": "0')
            path.write_text(rows.replace('"statuses": {', '"statuses": {"lost": 1, '))
        else:
            content = path.read_bytes()
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert any(told.startswith(name) for told in run_differences(Run(copy), Run(chaos / "run-0"))), name


def test_an_object_that_is_replaced_or_committed_twice_is_told(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    record = Generated(make_group(0, 0, 2, tokens=4))
    with CommitWatcher(store) as watcher:
        store.commit("journal/step-000000/00001.arrow", encode(0, 1, [record]))
        watcher.look_again()
        assert watcher.faults == []
        assert watcher.commits == 1
        store.commit("journal/step-000000/00002.arrow", encode(0, 2, [record]))
        store.put_mutable("config.json", b"{}")
        watcher.look_again()
        store.put_mutable("config.json", b"{ }")
    twice, replaced = watcher.faults
    assert twice.startswith("generated of step 0, slot 0: in journal/step-000000/00001.arrow and in")
    assert replaced == "config.json was replaced"


def test_a_plan_is_its_seeds_and_deals_every_kind_alike() -> None:
    first, again, other = ([list(islice(kill_plans(seed, 5), 7))] for seed in (1, 1, 2))
    assert first == again != other
    kinds = [kill.kind for plan in first[0] for kill in plan]
    assert {kind: kinds.count(kind) for kind in KINDS} == dict.fromkeys(KINDS, 5)
