"""A storm of every fault that a judge's server can show, and an outage: the run ends as an undisturbed one does.

The outage is of an hour with a second for each of its minutes: 60 s with probes at most 1 s apart, where a run waits at
most 60 s. What the length of an outage changes is the number of probes, and that is kept. The whole of it, some ten
minutes: RAYPOLY_STORM_STEPS=20 RAYPOLY_OUTAGE=60 python -m pytest -s tests/workflows/liveness/test_judge_storm.py
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from raypoly import Run
from tests.support.certificates import Certificates
from tests.support.faulty_server import Server, running
from tests.support.judge_faults import PASSING, Storm
from tests.support.local_driver import SMALL, LocalDriver

STEPS = int(os.environ.get("RAYPOLY_STORM_STEPS", "6"))
OUTAGE = float(os.environ.get("RAYPOLY_OUTAGE", "4"))
SHARE, LONGEST = (0.5, 3) if STEPS >= 20 else (0.7, 1)
"""A short run has few requests, and all faults to meet."""
KEY = "sk-storm-77d0a1"


class Compressed(LocalDriver):
    """A run for which a second is a minute."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.workflows.liveness.short_waits", *self.overrides, f"run.dir={self.folder}"]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    (tmp_path / "tls").mkdir()
    return Certificates.make(tmp_path / "tls")


def driver(folder: Path, model: Path, server: Server, certificates: Certificates) -> LocalDriver:
    own = [
        "generator.engine=transformers", f"model.path={model}", f"train.steps={STEPS}", "judge.name=openai",
        f"judge.base_url={server.url}", "judge.model=marker", "judge.api_key_env=STORM_KEY", "judge.view=raw",
        f"judge.cache_dir={folder}-cache", "judge.timeout=2", "judge.probe_seconds=0.3",
    ]  # fmt: skip
    return Compressed(folder, [*SMALL, *own], {"STORM_KEY": KEY, "SSL_CERT_FILE": str(certificates.trusted)})


@pytest.mark.slow
def test_a_storm_of_faults_and_an_outage_change_no_label(
    certificates: Certificates, warm_model: Path, tmp_path: Path
) -> None:
    with running(Server(key=KEY, certificates=certificates)) as calm:
        undisturbed = driver(tmp_path / "undisturbed", warm_model, calm, certificates)
        assert undisturbed.finish(timeout=1500) == 0, undisturbed.log()

    storm = Server(key=KEY, certificates=certificates, storm=Storm(seed=1, share=SHARE, longest=LONGEST))
    with running(storm):
        disturbed = driver(tmp_path / "disturbed", warm_model, storm, certificates)
        disturbed.start()
        assert disturbed.wait_for_commits(8 * STEPS // 2)
        storm.close()
        while Run(disturbed.folder).summary.get("state") != "paused":  # its retries come first
            assert disturbed.lives, disturbed.log()
            time.sleep(0.1)
        time.sleep(OUTAGE)
        storm.open()
        assert disturbed.finish(timeout=1500) == 0, disturbed.log()

    assert set(PASSING) <= storm.struck.keys(), "every fault struck"
    calm_groups, storm_groups = (judged(each.folder) for each in (undisturbed, disturbed))
    assert storm_groups == calm_groups, "a reward or a label differs, or a group was lost"
    assert all(not group["unjudged"] for group in storm_groups.values())
    assert disturbed.digests() == undisturbed.digests()
    assert disturbed.weights() == undisturbed.weights()

    print(json.dumps(told(disturbed, storm, storm_groups, [calm, storm]), indent=1))
    pauses = disturbed.summary["pauses"]
    assert len(pauses) == disturbed.log().count("Paused since")
    assert sum(pause["seconds"] for pause in pauses) >= OUTAGE
    page = (disturbed.folder / "report.html").read_text()
    assert all(pause["since"] in page for pause in pauses)

    for path in (*tmp_path.rglob("*"), disturbed.folder.with_suffix(".log")):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def judged(folder: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """By step and slot: the problem, and rewards and labels of its rollouts."""
    run = Run(folder)
    assert run.steps == list(range(STEPS))
    groups: dict[tuple[int, int], dict[str, Any]] = {}
    for step in run.steps:
        for row in run.rollouts(step).to_pylist():
            group = groups.setdefault((step, row["slot"]), {"unjudged": False, "rows": []})
            group["unjudged"] |= row["unjudged"]
            group["rows"].append([row[name] for name in ("problem_id", "reward", "label", "degenerate")])
    return groups


def told(run: LocalDriver, storm: Server, groups: dict[tuple[int, int], Any], servers: list[Server]) -> dict[str, Any]:
    """What to report of a run through a storm."""
    pauses, last = run.summary["pauses"], run.rows()[-1]["judge"]
    return {
        "steps": STEPS,
        "groups": len(groups),
        "requests, undisturbed and disturbed": [len(server.bodies) for server in servers],
        "faults": {name: count for name, count in sorted(storm.struck.items()) if name != "ok"},
        "pauses": [pause["seconds"] for pause in pauses],
        "judge": {name: last[name] for name in ("calls", "retries", "limited", "repairs", "refusals", "probes")},
    }
