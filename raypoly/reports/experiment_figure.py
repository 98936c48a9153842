"""An experiment's picture: coverage and strategies at the end, reward and strategies over the steps, by arm.

What is drawn is the mean over seeds; the band, or the whisker, is the range of the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from raypoly.experiments.arm_comparison import Arm, ArmComparison, SeedSpread
from raypoly.experiments.run_result import STRATEGIES
from raypoly.reports import figures

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
        (arm, colour) for arm, colour in zip(comparison.arms, _colours(len(comparison.arms)), strict=True) if arm.runs
    ]
    panels = part.subplots(2, 2)
    _coverage(panels[0, 0], comparison, arms)
    _strategies(panels[0, 1], comparison, arms)
    for axes, curve, title in (
        (panels[1, 0], "reward", "Reward of training rollouts"),
        (panels[1, 1], "strategies_correct", "Distinct correct strategies of training rollouts (dotted: judged)"),
    ):
        for arm, colour in arms:
            _curve(axes, arm, curve, colour)
            _curve(axes, arm, f"{curve}_judged", colour, ":")
        axes.set_title(title)
        figures.steps_axis(axes)
        axes.set_ylim(bottom=0)
    figures.clean_axes(panels.flat, grid=True)
    part.suptitle(f"{comparison.steps} steps", fontsize=11)
    part.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8, frameon=False
    )


def _coverage(axes: Axes, comparison: ArmComparison, arms: Sequence[tuple[Arm, str]]) -> None:
    ks = [measure for measure in comparison.measures if measure != STRATEGIES]
    for start in comparison.starts:
        name = "before" if len(comparison.starts) == 1 else f"before {', '.join(start.arms)}"
        _over_k(axes, {k: start.before(k) for k in ks}, figures.GREY, name, "--")
    for arm, colour in arms:
        _over_k(axes, {k: arm.after(k) for k in ks}, colour, arm.name, "-")
    figures.samples_axis(axes, ks, "Coverage on the test split, before and after")


def _over_k(axes: Axes, spreads: Mapping[str, SeedSpread | None], colour: str, name: str, line: str) -> None:
    known = [(int(k), spread) for k, spread in spreads.items() if spread is not None]
    if known:
        ks, found = [k for k, _ in known], [spread for _, spread in known]
        axes.plot(ks, [s.mean for s in found], line, marker="o", markersize=3, color=colour, label=name)
        axes.fill_between(ks, [s.low for s in found], [s.high for s in found], color=colour, alpha=0.12, linewidth=0)


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


def _curve(axes: Axes, arm: Arm, curve: str, colour: str, line: str = "-") -> None:
    """Draw mean and range of the seeds' running means, over the steps that all seeds have."""
    smooth = [
        dict(zip((step for step, _ in points), figures.running_mean([value for _, value in points]), strict=True))
        for points in (run.curves.get(curve, ()) for run in arm.runs)
    ]
    steps = sorted(set.intersection(*(set(values) for values in smooth)))
    if not steps:
        return
    spreads = [SeedSpread.of(values[step] for values in smooth) for step in steps]
    known = [spread for spread in spreads if spread is not None]
    axes.plot(steps, [s.mean for s in known], line, color=colour, linewidth=1.5, label=arm.name)
    axes.fill_between(steps, [s.low for s in known], [s.high for s in known], color=colour, alpha=0.15, linewidth=0)


def _colours(count: int) -> list[str]:
    """One colour for each arm, well apart; they repeat beyond twenty."""
    name, shades = ("tab10", 10) if count <= 10 else ("tab20", 20)
    colours = matplotlib.colormaps[name]
    return [matplotlib.colors.to_hex(colours(index % shades)) for index in range(count)]
