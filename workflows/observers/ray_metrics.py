"""What Ray shows of a run: its metrics (`raypoly/run/run_metrics.py`), which it serves to Prometheus on each node, and
the page of a submitted job on the dashboard.

Ray serves a gauge for some 25 s after it was set, so a thread sets them again for as long as the run lives. Counters
and histograms stay.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from typing import Any, Self

from ray.util.metrics import Counter, Gauge, Histogram

from actors import ray_internals
from raypoly.run.crash import describe_error
from raypoly.run.run_files import REPORT
from raypoly.run.run_identity import RunDirectory
from raypoly.run.run_metrics import RUN_METRICS, SPLIT, RunMetric, Source
from raypoly.run.sinks import evaluation_numbers, flatten
from workflows.durability.journal import Journal
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.observers.progress import describe_step
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.step.services import Services

AGAIN_SECONDS = 5.0
_BOUNDARIES = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]  # of histograms, in seconds
_STAGES = ("generate", "score", "judge", "learn", "commit")  # those that are always shown
_CLOSING_SECONDS = 2.0
_ACTORS = ("generator", "scorer", "judge", "learner", "reward")


class RayMetrics:
    """A metrics sink that needs a connected Ray. Within its `with` block a thread sets the gauges again."""

    def __init__(self, run: str, objective: str, live: Callable[[], Mapping[str, float]]) -> None:
        """`live`: numbers of what the run does now, called by a thread of its own."""
        self._live = live
        self._tags = {"run": run, "objective": objective}
        self._made = {each.name: self._make(each) for each in RUN_METRICS if each.source != "ray"}
        self._gauges: dict[tuple[Gauge, tuple[tuple[str, str], ...]], float] = {}
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
        self._take("step", flatten(row))

    def log_evaluation(self, results: Mapping[str, Any]) -> None:
        numbers = {"step": results["step"], **evaluation_numbers(results)}
        self._take("evaluation", numbers, {SPLIT: results["split"]})

    def call_ended(self, stage: str, seconds: float) -> None:
        for made in self._made.values():
            if isinstance(made, Histogram):
                made.observe(seconds, {**self._tags, "stage": stage})

    def _set_again(self) -> None:
        while True:
            numbers = self._live()
            self._seen = dict.fromkeys(self._seen, 0.0) | dict(numbers)  # what there is no more of is none
            self._take("now", self._seen)
            if self._ended.wait(AGAIN_SECONDS):
                return
            for (gauge, tags), value in list(self._gauges.items()):
                gauge.set(value, dict(tags))  # and not remembered: a step may have given another value meanwhile

    def _take(self, source: Source, numbers: Mapping[str, float], tags: Mapping[str, str] | None = None) -> None:
        for metric in RUN_METRICS:
            for value, label in metric.points(numbers) if metric.source == source else ():
                self._set(metric.name, value, {**self._tags, **(tags or {}), **label})

    def _set(self, name: str, value: float, tags: dict[str, str]) -> None:
        made = self._made[name]
        if isinstance(made, Gauge):
            self._gauges[made, tuple(tags.items())] = value
            made.set(value, tags)
        elif isinstance(made, Counter) and value > 0:
            made.inc(value, tags)

    def _make(self, metric: RunMetric) -> Counter | Gauge | Histogram:
        name, keys = f"raypoly_{metric.name}", (*self._tags, *metric.labels)
        if metric.kind == "histogram":
            return Histogram(name, metric.text, _BOUNDARIES, keys)
        return (Counter if metric.kind == "counter" else Gauge)(name, metric.text, keys)


class JobPage:
    """Shows the run with the Ray job that was submitted for it, if any: what fails here is told once, and harms no run.
    Used from one event loop."""

    def __init__(self, directory: RunDirectory, note: Callable[[str], None]) -> None:
        self._job, self._steps, self._note = ray_internals.submission_id(), directory.config.train.steps, note
        report = f"{directory.location.plain}/{REPORT} (when it ends; before: raypoly watch {directory.uri})"
        self._told = {"run": directory.name, "step": f"0 of {self._steps}"}
        self._more = {"report": report, "job_name": directory.name}
        self._line = f"{directory.name} starts"
        self._sending: asyncio.Task[None] | None = None
        self._changed = self._failed = False
        self._send()

    def log(self, row: Mapping[str, Any]) -> None:
        number = int(row["step"]) + 1
        self._told["step"] = f"{number} of {self._steps}"
        self._line = f"step {number}/{self._steps}  {describe_step(row)}"
        if row.get("reward") is not None:
            self._told["reward"] = f"{row['reward']:.3f}"
        self._send()

    def log_evaluation(self, results: Mapping[str, Any]) -> None:
        told = (f"{name} {value:.3f}" for name, value in evaluation_numbers(results).items() if "pass@" in name)
        self._told[f"{results['split']} split"] = f"after step {results['step']}: {', '.join(told)}"
        self._send()

    async def close(self) -> None:
        if self._sending is not None and (await asyncio.wait([self._sending], timeout=_CLOSING_SECONDS))[1]:
            self._sending.cancel()

    def _send(self) -> None:
        self._changed = self._job is not None
        if self._changed and (self._sending is None or self._sending.done()):
            self._sending = asyncio.get_running_loop().create_task(self._deliver())

    async def _deliver(self) -> None:
        assert self._job is not None
        while self._changed:
            self._changed = False
            try:
                await ray_internals.tell_job(self._job, {**self._told, **self._more}, self._line)
            except Exception as error:  # noqa: BLE001 - Ray's own storage promises nothing, and is only looked at
                if not self._failed:
                    self._note(f"The dashboard's page of this job may stay behind ({describe_error(error)}).")
                self._failed = True


def live_numbers(
    services: Services, journal: Journal, usage: RunJudgeUsage, pause: JudgeOutagePause
) -> dict[str, float]:
    """The numbers by name. May be called from any thread, at any time."""
    context, use, losses = services.context, usage.total, dict(services.context.retries.losses)
    calls = Tally(call.stage for call in context.in_flight.open)
    return {
        "paused": float(pause.is_paused),
        "programs_waiting": float(services.scorers.waiting),
        "retries_left": float(context.retries.left),
        "judge_calls": use.get("calls", 0.0),
        "judge_cache_hits": use.get("cache_hits", 0.0),
        "commit_age_seconds": journal.seconds_since_commit,
        **{f"calls/{stage}": float(calls[stage]) for stage in {*_STAGES, *calls}},
        **{f"scorers/{state}": float(count) for state, count in services.scorers.counts().items()},
        **{f"restarts/{kind}": float(sum(losses[who] for who in losses if kind in who.lower())) for kind in _ACTORS},
    }
