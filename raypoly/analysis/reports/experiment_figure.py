"""An experiment's picture: coverage and strategies at the end, reward and strategies over the steps, by arm.

What is drawn is the mean over seeds; the band, or the whisker, is the range of the seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.typing import LineStyleType

from raypoly.analysis.experiments.arm_comparison import ArmComparison, SeedSpread
from raypoly.analysis.experiments.run_result import STRATEGIES
from raypoly.analysis.reports import figures

Curve = Sequence[tuple[int, float]]
"""(step, value) of a run."""
WIDTH, HEIGHT = 13, 9
"""Inches of one comparison's panels."""
_OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe & Ito's palette (2008) for colour-blind readers, less yellow, which is faint on white."""
_LINES = ("-", "-.", (0, (5, 1, 1, 1, 1, 1)))
"""Of the arms by turns: one that lies on another leaves it to be seen. Dashed and dotted stand for other things."""


@dataclass(frozen=True)
class ArmStyle:
    """How an arm's lines look."""

    colour: str
    line: LineStyleType


def arm_styles(names: Iterable[str]) -> dict[str, ArmStyle]:
    """By the arms' names, in their order; 21 look different."""
    return {
        name: ArmStyle(_OKABE_ITO[place % len(_OKABE_ITO)], _LINES[place % len(_LINES)])
        for place, name in enumerate(names)
    }


def draw_experiment(name: str, comparisons: Sequence[ArmComparison]) -> bytes:
    """PNG; the same results give the same bytes. Comparisons without a finished run are left out."""
    drawn = [comparison for comparison in comparisons if any(arm.runs for arm in comparison.arms)]
    drawing = figures.new_figure(WIDTH, HEIGHT * max(1, len(drawn)), dpi=90)
    drawing.suptitle(name if drawn else f"{name}: no run is finished yet", fontsize=12)
    for part, comparison in zip(drawing.subfigures(max(1, len(drawn)), 1, squeeze=False).flat, drawn, strict=False):
        _draw_comparison(part, comparison)
    return figures.png_of(drawing)


def experiment_panels(comparison: ArmComparison) -> dict[str, figures.Panel]:
    """The four panels by name."""
    styles = arm_styles(arm.name for arm in comparison.arms)
    of_arms: dict[str, Any] = {"comparison": comparison, "styles": styles}
    correct = "Correct strategies in training (dotted: judged)"
    return {
        "coverage": figures.Panel("pass@k by k on test, before and after", partial(coverage, **of_arms)),
        "strategies": figures.Panel("distinct correct strategies by arm", partial(_strategies, **of_arms)),
        "reward": figures.Panel(
            "reward over the steps",
            partial(_over_steps, **of_arms, curve="reward", title="Reward of training rollouts"),
        ),
        "strategies_over_steps": figures.Panel(
            "correct strategies over the steps",
            partial(_over_steps, **of_arms, curve="strategies_correct", title=correct),
        ),
    }


def _draw_comparison(part: SubFigure, comparison: ArmComparison) -> None:
    panels = part.subplots(2, 2)
    for axes, panel in zip(panels.flat, experiment_panels(comparison).values(), strict=True):
        panel.draw(axes)
    figures.clean_axes(panels.flat, grid=True)
    part.suptitle("stages" if comparison.steps is None else f"{comparison.steps} steps", fontsize=11)
    part.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8, frameon=False
    )


def coverage(axes: Axes, comparison: ArmComparison, styles: Mapping[str, ArmStyle]) -> None:
    """Draw pass@k by k on test, before and after."""
    ks = [measure for measure in comparison.measures if measure != STRATEGIES]
    for start in comparison.starts:
        name = "before" if len(comparison.starts) == 1 else f"before {', '.join(start.arms)}"
        _over_k(axes, {k: start.before(k) for k in ks}, ArmStyle(figures.GREY, "--"), name)
    for arm in comparison.arms:
        _over_k(axes, {k: arm.after(k) for k in ks}, styles[arm.name], arm.name)
    figures.samples_axis(axes, ks, "Coverage on the test split")


def _over_k(axes: Axes, spreads: Mapping[str, SeedSpread | None], style: ArmStyle, name: str) -> None:
    known = [(int(k), spread) for k, spread in spreads.items() if spread is not None]
    ks, found = [k for k, _ in known], [spread for _, spread in known]
    _mean_and_range(axes, ks, found, style.colour, name, linestyle=style.line, label=name, marker="o", markersize=3)


def _strategies(axes: Axes, comparison: ArmComparison, styles: Mapping[str, ArmStyle]) -> None:
    """Draw a bar for each arm, the first on top, and a dashed line where the arms began."""
    known = [(arm.name, spread) for arm in reversed(comparison.arms) if (spread := arm.after(STRATEGIES))]
    for name, spread in known:
        reach = [[spread.mean - spread.low], [spread.high - spread.mean]]
        whisker = {"linewidth": 1, "capsize": 3}
        axes.barh(name, spread.mean, color=styles[name].colour, alpha=0.8, xerr=reach, error_kw=whisker)
    for start in comparison.starts:
        if before := start.before(STRATEGIES):
            axes.axvline(before.mean, color=figures.GREY, linestyle="--", linewidth=1)
    axes.set(title="Distinct correct strategies in 8, test split", xlabel="dashed: before")


def _over_steps(axes: Axes, comparison: ArmComparison, styles: Mapping[str, ArmStyle], curve: str, title: str) -> None:
    for arm in (arm for arm in comparison.arms if arm.runs):
        style = styles[arm.name]
        seed_curves(axes, arm.name, [run.curves.get(curve, ()) for run in arm.runs], style)
        judged = [run.curves.get(f"{curve}_judged", ()) for run in arm.runs]
        seed_curves(axes, f"{arm.name}, judged", judged, ArmStyle(style.colour, ":"), in_legend=False)
    axes.set_title(title)
    figures.steps_axis(axes)
    figures.from_zero(axes)


def seed_curves(
    axes: Axes, name: str, curves: Sequence[Curve], style: ArmStyle, smoothed: bool = True, in_legend: bool = True
) -> None:
    """Draw mean and range of an arm's runs, or of their running means, over the steps that all of them have."""
    found = [
        dict(zip((step for step, _ in points), _values(points, smoothed), strict=True)) for points in curves if points
    ]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    spreads = [spread for step in steps if (spread := SeedSpread.of(values[step] for values in found))]
    named = {"label": name} if in_legend else {"gid": name}
    _mean_and_range(axes, steps, spreads, style.colour, name, linestyle=style.line, **named)


def _values(points: Curve, smoothed: bool) -> Sequence[float]:
    values = [value for _, value in points]
    return figures.running_mean(values) if smoothed else values


def _mean_and_range(
    axes: Axes, places: Sequence[int], spreads: Sequence[SeedSpread], colour: str, name: str, **style: Any
) -> None:
    """Draw nothing for no places. The range's edges are lines, so that a table of the chart has them."""
    if not places:
        return
    axes.plot(places, [s.mean for s in spreads], color=colour, linewidth=1.5, **style)
    if max(s.count for s in spreads) > 1:
        low, high = [s.low for s in spreads], [s.high for s in spreads]
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        for edge, values in (("least", low), ("most", high)):
            axes.plot(places, values, color=colour, alpha=0.3, linewidth=0.5, gid=f"{name}, {edge}")
