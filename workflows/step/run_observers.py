"""Who watches a run and changes nothing of it: the terminal, the sinks of metrics, the summary, what the judge uses."""

from __future__ import annotations

from dataclasses import dataclass

from actors.judge import JudgeClient
from raypoly.judge.judge_usage import usage_to_json
from raypoly.metrics.sinks import Sinks
from raypoly.store.step_records import Applied
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
    """Of one run."""

    progress: Progress
    sinks: Sinks
    summary: Summary
    ray_metrics: RayMetrics
    judge_usage: RunJudgeUsage
    judge_drift: JudgeDriftMonitor
    judge_pause: JudgeOutagePause
    watchdog: Watchdog

    def restore(self, applied: Applied) -> None:
        """Tell whoever keeps numbers of a step that was committed; a step that they have is not taken twice."""
        self.sinks.log(applied.metrics)
        self.summary.add(applied.metrics)

    def step_done(self, applied: Applied) -> None:
        """Tell all of them of a step that was committed just now."""
        self.restore(applied)
        self.ray_metrics.log(applied.metrics)
        self.progress.step(applied.metrics)

    async def judge_numbers(self, judge: JudgeClient) -> JudgeNumbers:
        """What the row of a step says of the judge; nothing is said twice."""
        agreement, totals = self.judge_drift.take_agreement(), await judge.stats()
        use = self.judge_usage.take_unreported() if totals or self.judge_usage.has_usage else None
        a_step, to_end = (None, None) if use is None else self.summary.judge_usd(usage_to_json(use)["cost_usd"])
        return JudgeNumbers(totals, use, a_step, to_end, agreement)
