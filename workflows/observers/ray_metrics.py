"""The run's metrics (`raypoly/run/run_metrics.py`) through Ray, which serves them to Prometheus on each node.

Ray serves a gauge for some 25 s after it was set, so a thread sets them again for as long as the run lives. Counters
and histograms stay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

from ray.util.metrics import Counter, Gauge, Histogram

from raypoly.run.run_metrics import RUN_METRICS, SPLIT, RunMetric
from raypoly.run.sinks import evaluation_numbers, flatten

AGAIN_SECONDS = 5.0
_BOUNDARIES = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]  # of histograms, in seconds


class LastingGauge:
    """A Ray gauge that can be set again."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._values: dict[tuple[tuple[str, str], ...], float] = {}

    def take(self, value: float, tags: Mapping[str, str]) -> None:
        self._values[tuple(tags.items())] = value
        self._gauge.set(value, dict(tags))

    def set_again(self) -> None:
        for tags, value in list(self._values.items()):
            self._gauge.set(value, dict(tags))


class RisingCounter:
    """A Ray counter, to which each value is added."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def take(self, value: float, tags: Mapping[str, str]) -> None:
        if value > 0:
            self._counter.inc(value, dict(tags))


class RayMetrics:
    """A metrics sink that needs a connected Ray. Within its `with` block a thread sets the gauges again."""

    def __init__(self, run: str, objective: str, live: Callable[[], Mapping[str, float]]) -> None:
        """`live`: numbers of what the run does now, called by a thread of its own."""
        self._live = live
        self._tags = {"run": run, "objective": objective}
        self._of_steps, self._of_evaluations, self._of_now = (
            [(each, self._made(each)) for each in RUN_METRICS if each.source == source]
            for source in ("step", "evaluation", "now")
        )
        self._calls = [self._histogram(each) for each in RUN_METRICS if each.source == "call"]
        self._seen: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._set_again, name="ray-metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def log(self, row: Mapping[str, Any]) -> None:
        self._take(self._of_steps, flatten(row))

    def log_evaluation(self, results: Mapping[str, Any]) -> None:
        numbers = {"step": results["step"], **evaluation_numbers(results)}
        self._take(self._of_evaluations, numbers, {SPLIT: results["split"]})

    def call_ended(self, stage: str, seconds: float) -> None:
        for histogram in self._calls:
            histogram.observe(seconds, {**self._tags, "stage": stage})

    def _set_again(self) -> None:
        while True:
            numbers = self._live()
            self._seen = dict.fromkeys(self._seen, 0.0) | dict(numbers)  # what there is no more of is none
            self._take(self._of_now, self._seen)
            if self._ended.wait(AGAIN_SECONDS):
                return
            for _, emitter in (*self._of_steps, *self._of_evaluations):
                if isinstance(emitter, LastingGauge):
                    emitter.set_again()

    def _take(
        self,
        metrics: list[tuple[RunMetric, LastingGauge | RisingCounter]],
        numbers: Mapping[str, float],
        tags: Mapping[str, str] | None = None,
    ) -> None:
        for metric, emitter in metrics:
            for value, label in metric.points(numbers):
                emitter.take(value, {**self._tags, **(tags or {}), **label})

    def _made(self, metric: RunMetric) -> LastingGauge | RisingCounter:
        name, keys = f"raypoly_{metric.name}", self._keys(metric)
        if metric.kind == "counter":
            return RisingCounter(Counter(name, metric.text, keys))
        return LastingGauge(Gauge(name, metric.text, keys))

    def _histogram(self, metric: RunMetric) -> Histogram:
        return Histogram(f"raypoly_{metric.name}", metric.text, _BOUNDARIES, self._keys(metric))

    def _keys(self, metric: RunMetric) -> tuple[str, ...]:
        return (*self._tags, *metric.labels)
