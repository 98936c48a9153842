"""The charts of some runs beside each other: each measure over the steps, and pass@k by k before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from raypoly.analysis.experiments.arm_comparison import ArmComparison
from raypoly.analysis.experiments.compared_runs import ComparedRun
from raypoly.analysis.reports import figures
from raypoly.analysis.reports.experiment_figure import ArmStyle, Curve, arm_styles, coverage, seed_curves
from raypoly.analysis.reports.run_table import shown_ks
from raypoly.run.run_files import RunFiles

_TRAINING: Mapping[str, str] = {
    "reward": "Reward of training rollouts",
    "strategies": "Strategies of training rollouts, judged",
    "strategies_correct": "Distinct correct strategies of training rollouts",
}


def comparison_panels(runs: Sequence[ComparedRun], comparisons: Sequence[ArmComparison]) -> list[figures.Panel]:
    """Those that have something to draw. A line is an arm's mean, the band the range of its seeds; a run that can't be
    read has none."""
    styles = arm_styles(dict.fromkeys(run.result.arm for run in runs))
    runs = [run for run in runs if not run.result.trouble]
    panels = []
    for comparison in comparisons:
        if any(arm.runs for arm in comparison.arms):
            draw = partial(coverage, comparison=comparison, styles=styles)
            after = f"after {comparison.steps} steps" if len(comparisons) > 1 else "after"
            panels.append(figures.Panel(f"pass@k by k on test, before and {after}", partial(_with_legend, draw=draw)))
    for key, title in _TRAINING.items():
        panels += _over_steps(runs, styles, title, partial(_training, key=key), smoothed=True)
    ks = shown_ks(each["pass_at_k"] for run in runs for each in _validations(run.files))
    for k in dict.fromkeys((*ks[:1], *ks[-1:])):
        panels += _over_steps(runs, styles, f"pass@{k} on validation", partial(_validation, k=k), smoothed=False)
    return panels


def _over_steps(
    runs: Sequence[ComparedRun],
    styles: Mapping[str, ArmStyle],
    title: str,
    curve: Callable[[RunFiles], Curve],
    smoothed: bool,
) -> list[figures.Panel]:
    """One panel; none where no run has the measure."""
    curves: dict[str, list[Curve]] = {name: [] for name in styles}
    for run in runs:
        if points := curve(run.files):
            curves[run.result.arm].append(points)
    if not any(curves.values()):
        return []

    def draw(axes: Axes) -> None:
        for name, found in curves.items():
            seed_curves(axes, name, found, styles[name], smoothed)
        axes.set(title=title)
        figures.steps_axis(axes)
        figures.from_zero(axes)

    return [figures.Panel(f"{title}, over the steps", partial(_with_legend, draw=draw))]


def _with_legend(axes: Axes, draw: Callable[[Axes], Any]) -> None:
    """Draw, and name the arms."""
    draw(axes)
    figures.legend_below(axes, 2)


def _training(run: RunFiles, key: str) -> Curve:
    return [(row["step"], row[key]) for row in run.rows if row.get(key) is not None]


def _validation(run: RunFiles, k: str) -> Curve:
    known = [each for each in _validations(run) if each["pass_at_k"].get(k) is not None]
    return sorted((each["step"], each["pass_at_k"][k]) for each in known)


def _validations(run: RunFiles) -> list[Mapping[str, Any]]:
    return [each for each in run.evaluations if each["split"] == "validation"]
