"""The list of metrics, the dashboard in configs/ and docs/cluster.md name the same, and a node really serves them.

The slow test asks a real Prometheus for every panel of a real run with steps of 60 s and a pause of three minutes; some
ten minutes in all:
RAYPOLY_PAUSE=180 python -m pytest -s -m slow tests/workflows/observers/test_ray_metrics.py
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray
from prometheus_client.samples import Sample

from docs.tools.metrics_table import fill_metrics
from raypoly import Run
from raypoly.run.run_metrics import RUN_METRICS
from tests.support.faulty_server import Server, running
from tests.support.finished_run import metrics_row
from tests.support.local_driver import SMALL, LocalDriver, wait_for
from tests.support.ports import free_port
from workflows.observers.ray_metrics import RayMetrics
from workflows.observers.served_metrics import served_points
from workflows.startup.ray_cluster import local_ray

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "configs" / "grafana.json"
PAGE = ROOT / "docs" / "cluster.md"
ROW = {
    **metrics_row(0),
    **dict.fromkeys(("unjudged", "entropy", "mismatch_max", "clip_share", "truncated"), 0.1),
    **dict.fromkeys(("probe_mean", "probe_q99"), 0.02),
    **dict.fromkeys(("mismatch_k3", "importance_ess", "ratio_clipped_low", "ratio_clipped_high", "kl_reference"), 0.01),
    **dict.fromkeys(("judge_agreement", "strategies_structural", "strategies_correct_judged"), 0.5),
    "objective/sets": 6.0,
    "response_tokens": 100,
    "decoded_tokens": {"plan": 40, "solve": 100},
    "drafts": {"plan": 2},
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
PAUSE = int(os.environ.get("RAYPOLY_PAUSE", "60"))
STEP, EVERY = PAUSE / 3, PAUSE // 12
"""Seconds of a step, by its judge's answers, and between scrapes."""
NOT_FED = {
    *("pass_at_k", "evaluation_step", "evaluation_strategies"),
    *("evaluation_strategies_judge", "evaluation_strategies_structural"),
    *("judge_agreement", "ratio_clipped_low", "ratio_clipped_high", "kl_reference", "objective"),
    *("pause_seconds", "judge_usd", "decoded_tokens", "drafts"),
}
"""Metrics to which the run below gives no number, or not before its pause has ended."""


def values_of(points: Sequence[Sample], name: str, **labels: str) -> list[float]:
    """The values of the points of that name that have these labels."""
    return [point.value for point in points if point.name == name and labels.items() <= point.labels.items()]


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
        until = time.monotonic() + KEPT_SECONDS + 8
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


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus (apt install prometheus)")
def test_long_steps_and_a_long_pause_of_a_run_leave_no_gap(place: str, warm_model: Path, tmp_path: Path) -> None:
    environment = {"RAY_ADDRESS": ray.get_runtime_context().gcs_address, "RAY_AUTH_MODE": "token", "KEY": "sk-gaps"}
    with prometheus(tmp_path, place, EVERY) as asked, running(Server(latency=STEP)) as server:
        overrides = [
            *SMALL, "generator.engine=transformers", f"model.path={warm_model}", "judge.name=openai", "judge.view=raw",
            f"judge.base_url={server.url}", "judge.model=marker", "judge.api_key_env=KEY", "judge.probe_seconds=1",
            f"judge.cache_dir={tmp_path}", f"judge.timeout={2 * STEP}",
        ]  # fmt: skip
        driver = LocalDriver(tmp_path / "run", overrides, environment)
        driver.start()
        wait_for(lambda: bool(values_of(served_points(place), "ray_raypoly_step")) or not driver.lives)
        first = time.time() + 2 * EVERY  # a rate needs two scrapes
        time.sleep(STEP)
        server.close()
        wait_for(lambda: Run(driver.folder).summary.get("state") == "paused" or not driver.lives)
        begin = time.time() + EVERY + 15  # a gauge is set every 5 s, and Ray brings it to the exporter every 10 s
        time.sleep(PAUSE)
        end = time.time()
        server.open()
        wait_for(lambda: Run(driver.folder).summary.get("state") == "running" or not driver.lives)
        while driver.lives:
            last = time.time()
            time.sleep(1)
        assert driver.finish() == 0, driver.log()
        panels = json.loads(DASHBOARD.read_text())["panels"]
        shown = {
            query: asked.values(query.replace("$run", ".*"), first, last - 15)
            for query in (target["expr"] for panel in panels for target in panel["targets"])
            if NOT_FED.isdisjoint(each.name for each in RUN_METRICS if each.served in query)
        }
        paused = asked.values("ray_raypoly_paused", begin, end)
    assert {(query, round(at - first)) for query, found in shown.items() for at in found if not found[at]} == set()
    assert list(paused.values()) == [[1]] * len(paused)
    scrapes = len(next(iter(shown.values())))
    print(f"{len(shown)} queries, {scrapes} scrapes from the first step to the last 15 s; {len(paused)} of them in a")
    print(f"pause of {driver.summary['pauses'][0]['seconds']} s; seconds of each step:")
    print([row["seconds"]["total"] for row in driver.rows()])


@dataclass(frozen=True)
class PrometheusServer:
    """A running server."""

    url: str
    every: int
    """Seconds between scrapes."""

    def values(self, query: str, begin: float, end: float) -> dict[float, list[float]]:
        """What a panel with this query shows for each scrape from `begin` to `end`: the values of all its series."""
        times = [begin + self.every * n for n in range(int((end - begin) / self.every) + 1)]
        asked = {"query": query, "start": begin, "end": end, "step": self.every}
        with urllib.request.urlopen(f"{self.url}/api/v1/query_range?{urllib.parse.urlencode(asked)}") as answer:
            series = json.load(answer)["data"]["result"]
        found: dict[float, list[float]] = {at: [] for at in times}
        for each in series:
            for at, value in each["values"]:
                found[min(times, key=lambda one: abs(one - at))].append(float(value))
        return found


@contextmanager
def prometheus(folder: Path, place: str, every: int) -> Iterator[PrometheusServer]:
    """A Prometheus (`apt install prometheus`). A point counts for its own scrape alone, so that a gap is seen."""
    program, port = shutil.which("prometheus"), free_port()
    assert program is not None
    file = folder / "prometheus.yml"
    job = {"job_name": "ray", "scrape_interval": f"{every}s", "static_configs": [{"targets": [place]}]}
    file.write_text(json.dumps({"scrape_configs": [job]}))
    command = [
        program, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", f"--query.lookback-delta={every + every // 2}s",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            time.sleep(2 * every)
            yield PrometheusServer(f"http://127.0.0.1:{port}", every)
        finally:
            server.terminate()
