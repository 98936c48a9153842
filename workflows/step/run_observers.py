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
from raypoly.strategies.judge.judge_usage import usage_to_json
from workflows.durability.journal import Journal
from workflows.liveness.judge_drift import JudgeDriftMonitor
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.liveness.shutdown import Shutdown
from workflows.liveness.watchdog import Stacks, Watchdog
from workflows.observers.progress import Progress
from workflows.observers.ray_metrics import JobPage, RayMetrics, live_numbers
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.observers.summary import Summary
from workflows.step.services import Services


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
    job: JobPage

    def restore(self, applied: Applied) -> None:
        """Report a committed step to those that keep numbers; one that they have counts once."""
        self.sinks.log(applied.metrics)
        self.summary.add(applied.metrics)

    def step_done(self, applied: Applied) -> None:
        self.restore(applied)
        self.ray_metrics.log(applied.metrics)
        self.job.log(applied.metrics)
        self.progress.step(applied.metrics)

    def restore_evaluation(self, results: Mapping[str, Any]) -> None:
        """Report a committed evaluation, to sinks that don't have it from an earlier start."""
        self.ray_metrics.log_evaluation(results)
        self.job.log_evaluation(results)
        if not self.summary.told_before(results):
            self.sinks.log_evaluation(results)

    def evaluation_done(self, results: Mapping[str, Any]) -> None:
        self.summary.write("running")
        self.restore_evaluation(results)

    async def judge_numbers(self, judge: JudgeClient) -> dict[str, Any]:
        """The judge's part of a step's row: its counts since it was built, with those of other runs; this run's use
        since the last row, which is reported once; dollars of a step, by the newest ones, and of the steps to come;
        agreement with the gold labels, after a measurement of drift. Null where unknown."""
        agreement, totals = self.judge_drift.take_agreement(), await judge.stats()
        counted = totals or self.judge_usage.has_usage
        use = usage_to_json(self.judge_usage.take_unreported()) if counted else None
        a_step, to_end = (None, None) if use is None else self.summary.judge_usd(use["cost_usd"])
        return {
            "judge": {name: it if isinstance(it, int | float | None) else str(it) for name, it in totals.items()},
            "judge_step": use,
            "judge_usd_a_step": a_step,
            "judge_usd_to_end": to_end,
            "judge_agreement": agreement,
        }


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
    job = JobPage(directory, progress.note)
    stack.push_async_callback(job.close)
    return RunObservers(progress, sinks, summary, ray_metrics, usage, drift, pause, watchdog, job)


def _sinks(stack: AsyncExitStack, directory: RunDirectory, store: Store) -> Sinks:
    copies = [] if directory.location.folder else [Mirror(store, METRICS, TENSORBOARD)]
    known = run_id(store) if directory.config.run.wandb_project else None
    sinks = open_sinks(directory.config, store.workspace, copies, known)
    stack.callback(sinks.close)
    return sinks
