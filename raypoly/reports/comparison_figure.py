"""The charts of some runs beside each other: each measure over the steps, and pass@k by k before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes

from raypoly.experiments.arm_comparison import ArmComparison
from raypoly.experiments.compared_runs import ComparedRun
from raypoly.reports import figures
from raypoly.reports.experiment_figure import Curve, arm_colours, coverage, seed_curves
from raypoly.reports.run_table import KS
from raypoly.run_files import RunFiles

_TRAINING: Mapping[str, str] = {
    "reward": "Reward of training rollouts",
    "strategies": "Strategies of training rollouts, judged",
    "strategies_correct": "Distinct correct strategies of training rollouts",
}

_LINES = ("-", "--", ":", "-.")
"""Of the arms: one that lies on another leaves it to be seen."""


def comparison_panels(runs: Sequence[ComparedRun], comparisons: Sequence[ArmComparison]) -> list[figures.Panel]:
    """Those that have something to draw. A line is an arm's mean, the band the range of its seeds."""
    names = list(dict.fromkeys(run.result.arm for run in runs))
    colours = dict(zip(names, arm_colours(len(names)), strict=True))
    panels = []
    for comparison in comparisons:
        arms = [(arm, colours[arm.name]) for arm in comparison.arms if arm.runs]
        if arms:
            draw = partial(coverage, comparison=comparison, arms=arms)
            panels.append(figures.Panel("pass@k by k on test, before and after", partial(_with_legend, draw=draw)))
    for key, title in _TRAINING.items():
        panels += _over_steps(runs, colours, title, partial(_training, key=key), smoothed=True)
    for k in (KS[0], KS[-1]):
        panels += _over_steps(runs, colours, f"pass@{k} on validation", partial(_validation, k=k), smoothed=False)
    return panels


def _over_steps(
    runs: Sequence[ComparedRun],
    colours: Mapping[str, str],
    title: str,
    curve: Callable[[RunFiles], Curve],
    smoothed: bool,
) -> list[figures.Panel]:
    """One panel; none where no run has the measure."""
    curves: dict[str, list[Curve]] = {name: [] for name in colours}
    for run in runs:
        if points := curve(run.files):
            curves[run.result.arm].append(points)
    if not any(curves.values()):
        return []

    def draw(axes: Axes) -> None:
        for line, (name, found) in zip(cycle(_LINES), curves.items(), strict=False):
            seed_curves(axes, name, found, colours[name], smoothed, line)
        axes.set(title=title)
        figures.steps_axis(axes)
        axes.set_ylim(bottom=0)

    return [figures.Panel(f"{title}, over the steps", partial(_with_legend, draw=draw))]


def _with_legend(axes: Axes, draw: Callable[[Axes], Any]) -> None:
    """Draw, and name the arms."""
    draw(axes)
    figures.legend_below(axes, 2)


def _training(run: RunFiles, key: str) -> Curve:
    return [(row["step"], row[key]) for row in run.rows if row.get(key) is not None]


def _validation(run: RunFiles, k: str) -> Curve:
    found = [each for each in run.evaluations if each["split"] == "validation"]
    return sorted((each["step"], each["pass_at_k"][k]) for each in found if each["pass_at_k"].get(k) is not None)
