"""An experiment's picture: coverage and strategies at the end, reward and strategies over the steps, by arm.

What is drawn is the mean over seeds; the band, or the whisker, is the range of the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.typing import LineStyleType

from raypoly.experiments.arm_comparison import Arm, ArmComparison, SeedSpread
from raypoly.experiments.run_result import STRATEGIES
from raypoly.reports import figures
from raypoly.reports.figure_files import Panel

_OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe & Ito's palette (2008), less yellow, which is faint on white."""
_LINES = ("-", "-.", (0, (5, 1, 1, 1, 1, 1)))
"""Of the first arms, and of those that have the colours again; dashed and dotted stand for other things."""
WIDTH, HEIGHT = 13, 9
"""Inches of one comparison's panels."""


@dataclass(frozen=True)
class _DrawnArm:
    """An arm and how its lines look."""

    arm: Arm
    colour: str
    line: LineStyleType
    label: str | None
    """In the legend."""

    @classmethod
    def of(cls, arm: Arm, place: int) -> _DrawnArm:
        lap, colour = divmod(place, len(_OKABE_ITO))
        return cls(arm, _OKABE_ITO[colour], _LINES[lap % len(_LINES)], arm.name)


def draw_experiment(name: str, comparisons: Sequence[ArmComparison]) -> bytes:
    """PNG; the same results give the same bytes. Comparisons without a finished run are left out."""
    drawn = [comparison for comparison in comparisons if any(arm.runs for arm in comparison.arms)]
    drawing = figures.new_figure(WIDTH, HEIGHT * max(1, len(drawn)), dpi=90)
    drawing.suptitle(name if drawn else f"{name}: no run is finished yet", fontsize=12)
    for part, comparison in zip(drawing.subfigures(max(1, len(drawn)), 1, squeeze=False).flat, drawn, strict=False):
        _draw_comparison(part, comparison)
    return figures.png_of(drawing)


def _draw_comparison(part: SubFigure, comparison: ArmComparison) -> None:
    panels = part.subplots(2, 2)
    for axes, draw in zip(panels.flat, comparison_panels(comparison).values(), strict=True):
        draw(axes)
    figures.clean_axes(panels.flat, grid=True)
    part.suptitle(f"{comparison.steps} steps", fontsize=11)
    part.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8, frameon=False
    )


def comparison_panels(comparison: ArmComparison) -> dict[str, Panel]:
    """The four panels by name."""
    arms = [_DrawnArm.of(arm, place) for place, arm in enumerate(comparison.arms) if arm.runs]
    correct = "Correct strategies in training (dotted: judged)"
    return {
        "coverage": partial(_coverage, comparison=comparison, arms=arms),
        "strategies": partial(_strategies, comparison=comparison, arms=arms),
        "reward": partial(_over_steps, arms=arms, curve="reward", title="Reward of training rollouts"),
        "strategies_over_steps": partial(_over_steps, arms=arms, curve="strategies_correct", title=correct),
    }


def _over_steps(axes: Axes, arms: Sequence[_DrawnArm], curve: str, title: str) -> None:
    for drawn in arms:
        _curve(axes, drawn, curve)
        _curve(axes, replace(drawn, line=":", label=None), f"{curve}_judged")
    axes.set_title(title)
    figures.steps_axis(axes)
    axes.set_ylim(bottom=0)


def _coverage(axes: Axes, comparison: ArmComparison, arms: Sequence[_DrawnArm]) -> None:
    ks = [measure for measure in comparison.measures if measure != STRATEGIES]
    for start in comparison.starts:
        name = "before" if len(comparison.starts) == 1 else f"before {', '.join(start.arms)}"
        _over_k(axes, {k: start.before(k) for k in ks}, figures.GREY, name, "--")
    for drawn in arms:
        _over_k(axes, {k: drawn.arm.after(k) for k in ks}, drawn.colour, drawn.arm.name, drawn.line)
    figures.samples_axis(axes, ks, "Coverage on the test split")


def _over_k(axes: Axes, spreads: Mapping[str, SeedSpread | None], colour: str, name: str, line: LineStyleType) -> None:
    known = [(int(k), spread) for k, spread in spreads.items() if spread is not None]
    if known:
        ks, found = [k for k, _ in known], [spread for _, spread in known]
        axes.plot(ks, [s.mean for s in found], linestyle=line, marker="o", markersize=3, color=colour, label=name)
        axes.fill_between(ks, [s.low for s in found], [s.high for s in found], color=colour, alpha=0.12, linewidth=0)


def _strategies(axes: Axes, comparison: ArmComparison, arms: Sequence[_DrawnArm]) -> None:
    """Draw a bar for each arm, the first on top, and a dashed line where the arms began."""
    known = [(it.arm.name, spread, it.colour) for it in reversed(arms) if (spread := it.arm.after(STRATEGIES))]
    for name, spread, colour in known:
        reach = [[spread.mean - spread.low], [spread.high - spread.mean]]
        axes.barh(name, spread.mean, color=colour, alpha=0.8, xerr=reach, error_kw={"linewidth": 1, "capsize": 3})
    for start in comparison.starts:
        if before := start.before(STRATEGIES):
            axes.axvline(before.mean, color=figures.GREY, linestyle="--", linewidth=1)
    axes.set(title="Distinct correct strategies in 8, test split", xlabel="dashed: before")


def _curve(axes: Axes, drawn: _DrawnArm, curve: str) -> None:
    """Draw mean and range of the seeds' running means, over the steps that all seeds have."""
    smooth = [
        dict(zip((step for step, _ in points), figures.running_mean([value for _, value in points]), strict=True))
        for points in (run.curves.get(curve, ()) for run in drawn.arm.runs)
    ]
    steps = sorted(set.intersection(*(set(values) for values in smooth)))
    if not steps:
        return
    known = [spread for step in steps if (spread := SeedSpread.of(values[step] for values in smooth)) is not None]
    means, colour = [s.mean for s in known], drawn.colour
    axes.plot(steps, means, linestyle=drawn.line, color=colour, linewidth=1.5, label=drawn.label)
    axes.fill_between(steps, [s.low for s in known], [s.high for s in known], color=colour, alpha=0.15, linewidth=0)
