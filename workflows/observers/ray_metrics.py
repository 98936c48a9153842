"""The run's numbers as Ray metrics, which each node's Prometheus exporter serves (configs/grafana.json shows them).

Ray puts `ray_` before every name: `ray_raypoly_reward`. It serves a gauge for some 25 s after it was set, so a thread
sets them again for as long as the run lives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

from ray.util.metrics import Counter, Gauge

from raypoly.metrics.sinks import MEASURES, flatten

GAUGES: dict[str, str] = {
    "step": "Steps done.",
    "reward": "Mean reward of the step's rollouts.",
    "strategies": "Mean distinct judged strategies in a group.",
    "strategies_structural": "Mean distinct strategies in a group by structure, over the same groups.",
    "strategies_correct": "Mean distinct strategies, by execution, among a group's correct rollouts.",
    "zero_advantage": "Share of groups without a gradient.",
    "unjudged": "Groups of the step that the judge could not label.",
    "judge_agreement": "The judge's mean agreement (adjusted Rand index) with gold groups, where it was looked at.",
    "grad_norm": "Gradient norm before clipping.",
    "clip_share": "Share of steps whose gradient was clipped.",
    "entropy": "Mean token entropy of the sampling policy, in nats.",
    "mismatch_max": "Largest difference of a sampled log-probability between engine and learner.",
    "mismatch_k3": "KL of the sampling engine to the learner, nats a token.",
    "importance_ess": "Effective sample size of the learner/sampler ratios, as a share of the tokens.",
    "ratio_clipped_low": "Share of tokens whose loss the lower bound of the ratio decided.",
    "ratio_clipped_high": "Share of tokens whose loss the upper bound of the ratio decided.",
    "kl_reference": "KL to the starting model, nats a token, where the loss has such a term.",
    "tokens_per_second": "Sampled tokens a second.",
    "truncated": "Share of rollouts that reached the length limit.",
    "tail/seconds": "Seconds from the end of generation to the labels of the group that came out last.",
    "tail/exposed": "Seconds of those in which nothing hid scoring and judging.",
}
LIVE: dict[str, str] = {
    "programs_waiting": "Programs that no scorer has.",
    "scorers_busy": "Scorers at work.",
    "scorers_idle": "Scorers without work.",
    "scorers_starting": "Scorers that are asked for and not there yet.",
    "retries_left": "Retries left in the run's budget for lost actors.",
}
"""Gauges of what the run does now: looked up whenever the gauges are set again."""
_STAGE = "seconds/"
_EXPOSED = "exposed/"
_STATUS = "statuses/"


AGAIN_SECONDS = 5.0
"""Seconds after which every gauge is set again."""


class LastingGauge:
    """A Ray gauge that remembers what it was set to, so that it can be set again."""

    def __init__(self, name: str, text: str, keys: tuple[str, ...]) -> None:
        self._gauge = Gauge(f"raypoly_{name.replace('/', '_')}", text, keys)
        self._values: dict[tuple[tuple[str, str], ...], float] = {}

    def set(self, value: float, tags: Mapping[str, str]) -> None:
        """Set the value for these tags."""
        self._values[tuple(tags.items())] = value
        self._gauge.set(value, dict(tags))

    def set_again(self) -> None:
        """Set the last value for all tags."""
        for tags, value in list(self._values.items()):
            self._gauge.set(value, dict(tags))


class RayMetrics:
    """A metrics sink: gauges for the newest step, counters for sums. Needs a connected Ray.

    Within its `with` block a thread sets the gauges again.
    """

    def __init__(
        self, run: str, objective: str, live: Callable[[], Mapping[str, float]] = lambda: dict.fromkeys(LIVE, 0.0)
    ) -> None:
        """`live`: the numbers of `LIVE`. A thread of its own calls it."""
        self._live = live
        self._tags = {"run": run, "objective": objective}
        keys = tuple(self._tags)
        self._gauges = {name: LastingGauge(name, text, keys) for name, text in (GAUGES | LIVE).items()}
        self._stage = LastingGauge("stage_seconds", "Seconds of each stage of the newest step.", (*keys, "stage"))
        waited = "Seconds of the newest step that it waited for each stage, or for none of them (idle)."
        self._exposed = LastingGauge("exposed_seconds", waited, (*keys, "stage"))
        own = "A number of the objective's own, in the mean over the newest step's groups."
        self._measure = LastingGauge("objective", own, (*keys, "measure"))
        self._rollouts = Counter("raypoly_rollouts", "Rollouts by verdict.", (*keys, "status"))
        self._tokens = Counter("raypoly_response_tokens", "Sampled tokens.", keys)
        self._pause_seconds = Counter("raypoly_pause_seconds", "Seconds waited for the judge.", keys)
        self._judge_usd = Counter("raypoly_judge_usd", "US dollars that the judge's answers cost.", keys)
        self._paused = LastingGauge("paused", "1 while the run waits for the judge.", keys)
        self._paused.set(0, self._tags)
        self._lasting = (*self._gauges.values(), self._stage, self._exposed, self._measure, self._paused)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._set_again, name="ray-metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _set_again(self) -> None:
        while True:
            for name, value in self._live().items():
                self._gauges[name].set(value, self._tags)
            if self._ended.wait(AGAIN_SECONDS):
                return
            for gauge in self._lasting:
                gauge.set_again()

    def log(self, row: Mapping[str, Any]) -> None:
        """Take one row of metrics.jsonl."""
        numbers = flatten(row)
        for name, gauge in self._gauges.items():
            if name in numbers:
                gauge.set(numbers[name], self._tags)
        for name, value in numbers.items():
            if name.startswith(_STAGE):
                self._stage.set(value, {**self._tags, "stage": name.removeprefix(_STAGE)})
            elif name.startswith(_EXPOSED):
                self._exposed.set(value, {**self._tags, "stage": name.removeprefix(_EXPOSED)})
            elif name.startswith(MEASURES):
                self._measure.set(value, {**self._tags, "measure": name.removeprefix(MEASURES)})
            elif name.startswith(_STATUS) and value > 0:
                self._rollouts.inc(value, {**self._tags, "status": name.removeprefix(_STATUS)})
        for counter, name in (
            (self._tokens, "response_tokens"),
            (self._pause_seconds, "paused_seconds"),
            (self._judge_usd, "judge_step/cost_usd"),
        ):
            if numbers.get(name, 0) > 0:
                counter.inc(numbers[name], self._tags)

    def paused(self, paused: bool) -> None:
        """Set whether the run waits for the judge."""
        self._paused.set(int(paused), self._tags)
