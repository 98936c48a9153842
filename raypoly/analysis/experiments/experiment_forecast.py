"""What an experiment will cost, and what it can show, before anything starts.

for line in forecast_lines(runs, gpu="h200"): print(line)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from raypoly.analysis.experiments.experiment_power import planned_problems, power_lines
from raypoly.analysis.experiments.other_results import read_results
from raypoly.analysis.experiments.planned_runs import PlannedRun
from raypoly.analysis.experiments.run_result import RunResult
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.tables import ReportTable
from raypoly.planning.cost import forecast_judge
from raypoly.planning.free_resources import this_machine
from raypoly.planning.gpus import Device, choose_device, gpu_to_plan, layout_of
from raypoly.recipes.cppo.gates.audit import AUDITED
from raypoly.strategies.judge.judge_usage import dollars


def forecast_lines(runs: Sequence[PlannedRun], gpu: str | None, pilot: Path | None = None) -> Iterator[str]:
    """A row an arm, the sum, and the power; for the GPU of that name, or by `gpu_to_plan`. Raises `UsageError` where
    the GPU is unknown, or the results.json `pilot` can't be used."""
    said: list[str] = []
    gpu = gpu_to_plan(gpu, [run.checked_config for run in runs], said.append)
    yield from said
    device = choose_device(gpu, this_machine(runs[0].place).memory)
    arms = {run.arm: [other for other in runs if other.arm == run.arm] for run in runs}
    measured = [] if pilot is None else read_results(pilot, "--pilot")
    costs = {arm: _ArmCost(of_arm, device, measured) for arm, of_arm in arms.items()}
    yield from dict.fromkeys(note for cost in costs.values() for note in cost.notes)
    yield from dict.fromkeys(cost.size for cost in costs.values())
    rows = [*(cost.row(arm) for arm, cost in costs.items()), _total(costs)]
    yield "\n".join(ReportTable(("arm", "runs", "hours a run", "judge, a run"), rows).columns(23, 19))
    if pilot is None:
        yield "Hours come from a pilot (`--pilot results.json`), or from `raypoly train --rehearse` of an arm's config."
    yield ""
    try:
        yield from power_lines(runs, pilot)
    except UsageError as error:  # what it costs is known all the same
        if pilot is not None:
            raise
        yield str(error)


class _ArmCost:
    """Of one arm's runs."""

    def __init__(self, runs: Sequence[PlannedRun], device: Device, pilot: Sequence[RunResult]) -> None:
        self.kind, self.config, self.count = runs[0].kind, _as_steps(runs[0]), len(runs)
        self.counts, self.notes = planned_problems(self.config)
        own = [run for run in pilot if run.arm == runs[0].arm] or pilot
        steps = [run.step_seconds for run in own if run.step_seconds is not None]
        self.hours: float | None = None
        """GPU-hours of a run, or a CPU's hours; None where no pilot has measured a step."""
        if steps:
            seconds = self.config.train.steps * fmean(steps) + fmean(run.evaluation_seconds for run in own)
            self.hours = max(1, layout_of(self.config, device).gpus) * seconds / 3600
        step = forecast_judge(self.config)
        self.usd = None if step.usd is None else step.usd * self.config.train.steps

    @property
    def size(self) -> str:
        tested = f"{self.counts.get('test', 0)} problems x {self.config.evaluate.samples} samples"
        if self.kind == "evaluate":
            return f"Tested once on {tested}."
        if self.kind == "audit":
            return f"An audit of {AUDITED} problems, counted as {self.config.train.steps} steps."
        measured = f"tested before and after on {tested}" if self.config.evaluate.every else "not tested"
        return f"{self.config.train.steps} steps; {measured}."

    def row(self, arm: str) -> tuple[str, ...]:
        return (arm, str(self.count), _hours(self.hours), _usd(self.usd))


def _as_steps(run: PlannedRun) -> Config:
    """The config by which its cost is counted. That of an audit has steps over as many problems: too much, since it
    updates nothing."""
    config = run.checked_config
    if run.kind != "audit":
        return config
    steps = math.ceil(AUDITED / config.train.prompts_per_step)
    return config.model_copy(update={"train": config.train.model_copy(update={"steps": steps})})


def _total(costs: dict[str, _ArmCost]) -> tuple[str, ...]:
    count = sum(cost.count for cost in costs.values())
    hours = [cost.count * cost.hours for cost in costs.values() if cost.hours is not None]
    usd = [cost.count * cost.usd for cost in costs.values() if cost.usd is not None]
    whole = sum(hours) if len(hours) == len(costs) else None
    return ("in all", str(count), _hours(whole), _usd(sum(usd) if len(usd) == len(costs) else None))


def _hours(hours: float | None) -> str:
    return "unknown" if hours is None else f"{hours:,.1f}"


def _usd(usd: float | None) -> str:
    return "unknown" if usd is None else dollars(usd) if usd else "without cost"
