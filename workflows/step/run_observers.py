"""The observers of a run, which change nothing of it: terminal, metrics, summary, the judge's use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors.judge import JudgeClient
from raypoly.run.sinks import Sinks
from raypoly.run.store.step_records import Applied
from raypoly.strategies.judge.judge_usage import usage_to_json
from workflows.liveness.judge_drift import JudgeDriftMonitor
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.liveness.watchdog import Watchdog
from workflows.observers.progress import Progress
from workflows.observers.ray_metrics import RayMetrics
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.observers.summary import Summary
from workflows.step.step_metrics import JudgeNumbers


@dataclass
class RunObservers:
    """One run's observers."""

    progress: Progress
    sinks: Sinks
    summary: Summary
    ray_metrics: RayMetrics
    judge_usage: RunJudgeUsage
    judge_drift: JudgeDriftMonitor
    judge_pause: JudgeOutagePause
    watchdog: Watchdog

    def restore(self, applied: Applied) -> None:
        """Report a committed step to those that keep numbers; a step that they have counts once."""
        self.sinks.log(applied.metrics)
        self.summary.add(applied.metrics)

    def step_done(self, applied: Applied) -> None:
        """Report a step that was committed just now."""
        self.restore(applied)
        self.ray_metrics.log(applied.metrics)
        self.progress.step(applied.metrics)

    def restore_evaluation(self, results: Mapping[str, Any]) -> None:
        """Report a committed evaluation. One that an earlier start has told the sinks of counts once."""
        self.ray_metrics.log_evaluation(results)
        if not self.summary.told_before(results):
            self.sinks.log_evaluation(results)

    def evaluation_done(self, results: Mapping[str, Any]) -> None:
        """Report an evaluation that was committed just now."""
        self.summary.write("running")
        self.restore_evaluation(results)

    async def judge_numbers(self, judge: JudgeClient) -> JudgeNumbers:
        """The judge's numbers for a step's row. Each use is reported once."""
        agreement, totals = self.judge_drift.take_agreement(), await judge.stats()
        use = self.judge_usage.take_unreported() if totals or self.judge_usage.has_usage else None
        a_step, to_end = (None, None) if use is None else self.summary.judge_usd(usage_to_json(use)["cost_usd"])
        return JudgeNumbers(totals, use, a_step, to_end, agreement)
