"""What an experiment will cost, and what it can show, before anything starts.

for line in forecast_lines(runs, gpu="h200"): print(line)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from raypoly.analysis.experiments.experiment_power import planned_problems, power_lines
from raypoly.analysis.experiments.planned_runs import PlannedRun
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.tables import ReportTable
from raypoly.planning.dry_run import forecast_judge, run_hours
from raypoly.planning.free_resources import this_machine
from raypoly.planning.gpus import Device, choose_device, gpu_to_plan
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
    costs = {arm: _ArmCost(of_arm, device) for arm, of_arm in arms.items()}
    yield from dict.fromkeys(note for cost in costs.values() for note in cost.notes)
    yield from dict.fromkeys(cost.size for cost in costs.values())
    rows = [*(cost.row(arm) for arm, cost in costs.items()), _total(costs)]
    yield "\n".join(ReportTable(("arm", "runs", "GPU-hours a run", "judge, a run"), rows).columns(23, 19))
    yield f"Time is a first guess for {device.name}: for responses of half, and of all, of generator.max_tokens.\n"
    try:
        yield from power_lines(runs, pilot)
    except UsageError as error:  # what it costs is known all the same
        if pilot is not None:
            raise
        yield str(error)


class _ArmCost:
    """Of one arm's runs."""

    def __init__(self, runs: Sequence[PlannedRun], device: Device) -> None:
        self.kind, self.config, self.count = runs[0].kind, _as_steps(runs[0]), len(runs)
        self.counts, self.notes = planned_problems(self.config)
        self.hours = run_hours(self.config, device, self.counts)
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
    hours = [(cost.count * cost.hours[0], cost.count * cost.hours[1]) for cost in costs.values() if cost.hours]
    usd = [cost.count * cost.usd for cost in costs.values() if cost.usd is not None]
    low, high = (sum(side) for side in zip(*hours, strict=True)) if len(hours) == len(costs) else (None, None)
    summed = None if low is None or high is None else (low, high)
    return ("in all", str(count), _hours(summed), _usd(sum(usd) if len(usd) == len(costs) else None))


def _hours(hours: tuple[float, float] | None) -> str:
    return "unknown" if hours is None else f"{hours[0]:,.1f} to {hours[1]:,.1f}"


def _usd(usd: float | None) -> str:
    return "unknown" if usd is None else dollars(usd) if usd else "without cost"
