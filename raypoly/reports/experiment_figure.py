"""An experiment's picture: coverage and strategies at the end, reward and strategies over the steps, by arm.

What is drawn is the mean over seeds; the band, or the whisker, is the range of the seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from raypoly.experiments.arm_comparison import Arm, ArmComparison, SeedSpread
from raypoly.experiments.run_result import STRATEGIES
from raypoly.reports import figures
from raypoly.reports.run_table import KS

Curve = Sequence[tuple[int, float]]
"""(step, value) of a run."""
WIDTH, HEIGHT = 13, 9
"""Inches of one comparison's panels."""


def draw_experiment(name: str, comparisons: Sequence[ArmComparison]) -> bytes:
    """PNG; the same results give the same bytes. Comparisons without a finished run are left out."""
    drawn = [comparison for comparison in comparisons if any(arm.runs for arm in comparison.arms)]
    drawing = figures.new_figure(WIDTH, HEIGHT * max(1, len(drawn)), dpi=90)
    drawing.suptitle(name if drawn else f"{name}: no run is finished yet", fontsize=12)
    for part, comparison in zip(drawing.subfigures(max(1, len(drawn)), 1, squeeze=False).flat, drawn, strict=False):
        _draw_comparison(part, comparison)
    return figures.png_of(drawing)


def _draw_comparison(part: SubFigure, comparison: ArmComparison) -> None:
    arms = [
        (arm, colour)
        for arm, colour in zip(comparison.arms, arm_colours(len(comparison.arms)), strict=True)
        if arm.runs
    ]
    panels = part.subplots(2, 2)
    coverage(panels[0, 0], comparison, arms)
    _strategies(panels[0, 1], comparison, arms)
    for axes, curve, title in (
        (panels[1, 0], "reward", "Reward of training rollouts"),
        (panels[1, 1], "strategies_correct", "Distinct correct strategies of training rollouts"),
    ):
        for arm, colour in arms:
            seed_curves(axes, arm.name, [run.curves[curve] for run in arm.runs], colour)
        axes.set_title(title)
        figures.steps_axis(axes)
        axes.set_ylim(bottom=0)
    figures.clean_axes(panels.flat, grid=True)
    part.suptitle(f"{comparison.steps} steps", fontsize=11)
    part.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8, frameon=False
    )


def coverage(axes: Axes, comparison: ArmComparison, arms: Sequence[tuple[Arm, str]]) -> None:
    """Draw pass@k by k on test, before and after; `arms` have a colour each."""
    for start in comparison.starts:
        name = "before" if len(comparison.starts) == 1 else f"before {', '.join(start.arms)}"
        _over_k(axes, [start.before(k) for k in KS], figures.GREY, name, "--")
    for arm, colour in arms:
        _over_k(axes, [arm.after(k) for k in KS], colour, arm.name, "-")
    figures.samples_axis(axes, KS, "Coverage on the test split, before and after")


def _over_k(axes: Axes, spreads: Sequence[SeedSpread | None], colour: str, name: str, line: str) -> None:
    known = [(int(k), spread) for k, spread in zip(KS, spreads, strict=True) if spread is not None]
    ks, found = [k for k, _ in known], [spread for _, spread in known]
    _mean_and_range(axes, ks, found, colour, name, linestyle=line, marker="o", markersize=3)


def _strategies(axes: Axes, comparison: ArmComparison, arms: Sequence[tuple[Arm, str]]) -> None:
    """Draw a bar for each arm, the first on top, and a dashed line where the arms began."""
    known = [(arm.name, spread, colour) for arm, colour in reversed(arms) if (spread := arm.after(STRATEGIES))]
    for name, spread, colour in known:
        reach = [[spread.mean - spread.low], [spread.high - spread.mean]]
        axes.barh(name, spread.mean, color=colour, alpha=0.8, xerr=reach, error_kw={"linewidth": 1, "capsize": 3})
    for start in comparison.starts:
        if before := start.before(STRATEGIES):
            axes.axvline(before.mean, color=figures.GREY, linestyle="--", linewidth=1)
    axes.set(title="Distinct correct strategies in 8 on the test split", xlabel="dashed: before")


def seed_curves(
    axes: Axes, name: str, curves: Sequence[Curve], colour: str, smoothed: bool = True, line: str = "-"
) -> None:
    """Draw mean and range of an arm's runs, or of their running means, over the steps that all of them have."""
    found = [
        dict(zip((step for step, _ in points), _values(points, smoothed), strict=True)) for points in curves if points
    ]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    spreads = [SeedSpread.of(values[step] for values in found) for step in steps]
    _mean_and_range(axes, steps, [spread for spread in spreads if spread], colour, name, linestyle=line)


def _values(points: Curve, smoothed: bool) -> Sequence[float]:
    values = [value for _, value in points]
    return figures.running_mean(values) if smoothed else values


def _mean_and_range(
    axes: Axes, places: Sequence[int], spreads: Sequence[SeedSpread], colour: str, name: str, **style: Any
) -> None:
    """Draw nothing for no places. The range's edges are lines, so that a table of the chart has them."""
    if not places:
        return
    axes.plot(places, [s.mean for s in spreads], color=colour, label=name, **style)
    if max(s.count for s in spreads) > 1:
        low, high = [s.low for s in spreads], [s.high for s in spreads]
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        for edge, values in (("least", low), ("most", high)):
            axes.plot(places, values, color=colour, alpha=0.3, linewidth=0.5, gid=f"{name}, {edge}")


def arm_colours(count: int) -> list[str]:
    """One colour for each arm, well apart; they repeat beyond twenty."""
    name, shades = ("tab10", 10) if count <= 10 else ("tab20", 20)
    colours = matplotlib.colormaps[name]
    return [matplotlib.colors.to_hex(colours(index % shades)) for index in range(count)]
