"""The list of metrics, the dashboard in configs/ and docs/cluster.md name the same, and a node really serves them."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import ray
from prometheus_client.samples import Sample

from docs.tools.metrics_table import fill_metrics
from raypoly.core.settings import load
from raypoly.run.run_identity import resolve_run
from raypoly.run.run_metrics import RUN_METRICS
from tests.support.finished_run import metrics_row
from tests.support.local_driver import wait_for
from tests.support.served_metrics import served_points
from workflows.observers.ray_metrics import JobPage, RayMetrics
from workflows.startup.ray_cluster import local_ray

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "configs" / "grafana.json"
PAGE = ROOT / "docs" / "cluster.md"
ROW = {
    **metrics_row(0),
    **dict.fromkeys(("unjudged", "entropy", "mismatch_max", "clip_share", "truncated", "update_norm"), 0.1),
    **dict.fromkeys(("probe_mean", "probe_q99"), 0.02),
    **dict.fromkeys(("mismatch_k3", "importance_ess", "ratio_clipped_low", "ratio_clipped_high", "kl_reference"), 0.01),
    **dict.fromkeys(("judge_agreement", "strategies_structural", "strategies_correct_judged"), 0.5),
    "objective/sets": 6.0,
    "reward/length": 0.5,
    "unknown_rollouts": 0,
    "staleness": 1.0,
    "response_tokens": 100,
    "decoded_tokens": {"plan": 40, "solve": 100},
    "drafts": {"plan": 2},
    "drafts_with_thoughts": {"plan": 1},
    "paused_seconds": 1.5,
    "judge_step": {"cost_usd": 0.016},
}
EVALUATION = {
    **{"step": 80, "split": "test", "pass_at_k": {"1": 0.25, "8": 0.5}},
    **{"strategies_correct": 1.5, "strategies_correct_judge": 1.25, "strategies_correct_structural": 1.75},
}
NOW = {each.number + "x" if each.label else each.name: 0.0 for each in RUN_METRICS if each.source == "now"}
KEPT_SECONDS = 25.0
"""How long Ray itself keeps a gauge."""


def values_of(points: Sequence[Sample], name: str, **labels: str) -> list[float]:
    """The values of the points of that name that have these labels."""
    return [point.value for point in points if point.name == name and labels.items() <= point.labels.items()]


def test_a_job_whose_page_cannot_be_written_is_told_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []

    async def run() -> None:
        page = JobPage(resolve_run(load(None, [f"run.dir={tmp_path / 'run'}"])), notes.append)
        for step in range(3):
            page.log({**ROW, "step": step})
            page.log_evaluation(EVALUATION)
            await asyncio.sleep(0)
        await page.close()

    asyncio.run(run())
    assert notes == [], "outside a submitted job there is no page"
    job = {"metadata": {"job_submission_id": "a-job"}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(job))  # and this process is connected to no Ray
    asyncio.run(run())
    (note,) = notes
    assert note.startswith("The dashboard's page of this job may stay behind (")


@pytest.fixture
def place() -> Iterator[str]:
    """Where a Ray node of our own serves its metrics."""
    with (
        tempfile.TemporaryDirectory(prefix="rp-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        local_ray(num_cpus=2, include_dashboard=False, _temp_dir=folder, log_to_driver=False),
    ):
        yield f"127.0.0.1:{ray.nodes()[0]['MetricsExportPort']}"


def test_the_list_the_dashboard_and_the_page_name_the_same_metrics() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["title"] == "raypoly"
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert {name for query in queries for name in re.findall(r"ray_\w+", query)} == {
        each.served for each in RUN_METRICS
    }
    assert PAGE.read_text() == fill_metrics(PAGE.read_text()), "docs/cluster.md is out of date: run `make docs`"


def test_a_node_serves_every_metric_for_as_long_as_the_run_lives(place: str) -> None:
    names, now = {each.served for each in RUN_METRICS}, {**NOW, "paused": 1.0, "calls/score": 3.0}
    with RayMetrics("a-run", "poly_epo", lambda: now) as metrics:
        until = time.monotonic() + KEPT_SECONDS + 4
        metrics.log(ROW)
        metrics.log_evaluation(EVALUATION)
        metrics.log_evaluation({**EVALUATION, "split": "validation", "pass_at_k": {"1": 0.125}})
        metrics.call_ended("score", 0.2)
        wait_for(lambda: names <= {point.name for point in served_points(place)})
        while time.monotonic() < until:
            points = served_points(place)
            assert names <= {point.name for point in points}
            assert values_of(points, "ray_raypoly_paused") == [1]
            time.sleep(4)
        assert values_of(points, "ray_raypoly_reward", run="a-run", objective="poly_epo") == [
            pytest.approx(ROW["reward"])
        ]
        assert values_of(points, "ray_raypoly_pass_at_k", split="test", k="8") == [0.5]
        assert values_of(points, "ray_raypoly_pass_at_k", split="validation") == [0.125]
        assert values_of(points, "ray_raypoly_evaluation_step", split="test") == [80]
        assert values_of(points, "ray_raypoly_response_tokens_total") == [100]
        assert values_of(points, "ray_raypoly_call_seconds_bucket", stage="score", le="0.3") == [1]
        assert values_of(points, "ray_raypoly_calls", stage="score") == [3]
        del now["calls/score"]
        now["paused"] = 0.0
        wait_for(lambda: values_of(served_points(place), "ray_raypoly_paused") == [0])
        assert values_of(served_points(place), "ray_raypoly_calls", stage="score") == [0], "there is no more of it"
