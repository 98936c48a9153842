"""The observers of a run, which change nothing of it: terminal, metrics, summary, judge's use, watchdog."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors.judge import JudgeClient
from raypoly.run.run_identity import RunDirectory, run_id
from raypoly.run.sinks import METRICS, TENSORBOARD, Mirror, Sinks, open_sinks
from raypoly.run.store import Store
from raypoly.run.store.step_records import Applied
from raypoly.strategies.judge.judge_usage import UsageCounts, usage_to_json
from workflows.durability.journal import Journal
from workflows.liveness.judge_drift import JudgeDriftMonitor
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.liveness.shutdown import Shutdown
from workflows.liveness.watchdog import Stacks, Watchdog
from workflows.observers.live_numbers import live_numbers
from workflows.observers.progress import Progress
from workflows.observers.ray_metrics import RayMetrics
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.observers.summary import Summary
from workflows.step.services import Services


@dataclass(frozen=True)
class JudgeNumbers:
    totals: Mapping[str, Any]
    """Counts since it was built, with those of other runs; empty where it keeps none."""
    use: UsageCounts | None
    """This run's since the last row; None where the judge counts nothing."""
    usd_a_step: float | None
    usd_to_end: float | None
    """US dollars a step, by the newest ones, and of the steps to come; None where unknown."""
    agreement: float | None
    """With the gold labels, after a measurement of drift."""


@dataclass
class RunObservers:
    progress: Progress
    sinks: Sinks
    summary: Summary
    ray_metrics: RayMetrics
    judge_usage: RunJudgeUsage
    judge_drift: JudgeDriftMonitor
    judge_pause: JudgeOutagePause
    watchdog: Watchdog

    def restore(self, applied: Applied) -> None:
        """Report a committed step to those that keep numbers; one that they have counts once."""
        self.sinks.log(applied.metrics)
        self.summary.add(applied.metrics)

    def step_done(self, applied: Applied) -> None:
        self.restore(applied)
        self.ray_metrics.log(applied.metrics)
        self.progress.step(applied.metrics)

    def restore_evaluation(self, results: Mapping[str, Any]) -> None:
        """Report a committed evaluation, to sinks that don't have it from an earlier start."""
        self.ray_metrics.log_evaluation(results)
        if not self.summary.told_before(results):
            self.sinks.log_evaluation(results)

    def evaluation_done(self, results: Mapping[str, Any]) -> None:
        self.summary.write("running")
        self.restore_evaluation(results)

    async def judge_numbers(self, judge: JudgeClient) -> JudgeNumbers:
        """The numbers for a step's row. Each use is reported once."""
        agreement, totals = self.judge_drift.take_agreement(), await judge.stats()
        use = self.judge_usage.take_unreported() if totals or self.judge_usage.has_usage else None
        a_step, to_end = (None, None) if use is None else self.summary.judge_usd(usage_to_json(use)["cost_usd"])
        return JudgeNumbers(totals, use, a_step, to_end, agreement)


def open_observers(
    stack: AsyncExitStack,
    directory: RunDirectory,
    services: Services,
    journal: Journal,
    store: Store,
    usage: RunJudgeUsage,
    progress: Progress,
    shutdown: Shutdown,
) -> RunObservers:
    """The stack stops those that watch something."""
    config = directory.config
    summary = Summary(store, journal, config)
    pause = JudgeOutagePause(config.judge, progress, config.run.on_pause, summary.pause)
    live = partial(live_numbers, services, journal, usage, pause)
    ray_metrics = stack.enter_context(RayMetrics(directory.name, config.objective.name, live))
    services.context.in_flight.on_end = ray_metrics.call_ended
    watchdog = Watchdog(
        config.run.stall_seconds,
        services.context.in_flight,
        services.actors,
        Stacks(store),
        progress.note,
        failed=shutdown.request,
        paused=lambda: pause.is_paused,
    )
    stack.enter_context(watchdog)
    drift = JudgeDriftMonitor(config, services.scorers, services.judge, progress.note)
    stack.callback(drift.stop)
    sinks = _sinks(stack, directory, store)
    return RunObservers(progress, sinks, summary, ray_metrics, usage, drift, pause, watchdog)


def _sinks(stack: AsyncExitStack, directory: RunDirectory, store: Store) -> Sinks:
    copies = [] if directory.location.folder else [Mirror(store, METRICS, TENSORBOARD)]
    known = run_id(store) if directory.config.run.wandb_project else None
    sinks = open_sinks(directory.config, store.workspace, copies, known)
    stack.callback(sinks.close)
    return sinks
