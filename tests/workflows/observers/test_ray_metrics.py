"""The dashboard in configs/ asks for numbers that a node really serves."""

from __future__ import annotations

import json
import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from raypoly.metrics.sinks import flatten
from tests.support.finished_run import metrics_row
from workflows.observers.ray_metrics import GAUGES, LIVE, RayMetrics
from workflows.startup.ray_cluster import local_ray

DASHBOARD = Path(__file__).resolve().parents[3] / "configs" / "grafana.json"
ROW = {
    **metrics_row(0),
    **dict.fromkeys(("unjudged", "entropy", "mismatch_max", "clip_share", "truncated"), 0.1),
    **dict.fromkeys(("mismatch_k3", "importance_ess", "ratio_clipped_low", "ratio_clipped_high", "kl_reference"), 0.01),
    **dict.fromkeys(("judge_agreement", "strategies_structural"), 0.5),
    "response_tokens": 100,
    "paused_seconds": 1.5,
    "judge_step": {"cost_usd": 0.016},
}


@pytest.fixture
def port() -> Iterator[int]:
    """The metrics port of a Ray node of our own."""
    with (
        tempfile.TemporaryDirectory(prefix="rp-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        local_ray(num_cpus=1, include_dashboard=False, _temp_dir=folder, log_to_driver=False),
    ):
        yield int(ray.nodes()[0]["MetricsExportPort"])


def served(port: int) -> dict[str, float]:
    """Value by metric and its last label that is ours."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("ray_raypoly_")}


def test_every_number_of_the_dashboard_is_served_by_the_node(port: int) -> None:
    asked = set(re.findall(r"ray_raypoly_\w+", DASHBOARD.read_text()))
    assert len(asked) >= len(GAUGES | LIVE)
    with RayMetrics("a-run", "poly_epo") as metrics:
        metrics.log(ROW)
        metrics.paused(True)
        deadline = time.monotonic() + 300
        while asked - served(port).keys() and time.monotonic() < deadline:
            time.sleep(1)
        values = served(port)
    assert asked <= values.keys()
    assert values["ray_raypoly_reward"] == pytest.approx(ROW["reward"])
    assert values["ray_raypoly_paused"] == 1
    assert values["ray_raypoly_response_tokens_total"] == 100


def test_a_gauge_is_served_for_as_long_as_the_run_lives(port: int) -> None:
    with RayMetrics("a-run", "poly_epo") as metrics:
        metrics.log(ROW)
        metrics.paused(True)
        expected = {f"ray_raypoly_{name.replace('/', '_')}" for name in GAUGES if name in flatten(ROW)}
        expected |= {f"ray_raypoly_{name}" for name in LIVE} | {
            "ray_raypoly_paused",
            "ray_raypoly_stage_seconds",
            "ray_raypoly_exposed_seconds",
        }
        deadline = time.monotonic() + 60
        while expected - served(port).keys() and time.monotonic() < deadline:
            time.sleep(1)
        for _ in range(9):
            assert expected <= served(port).keys()
            time.sleep(5)


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["title"] == "raypoly"
    assert all(panel["targets"] and panel["title"] for panel in dashboard["panels"])
