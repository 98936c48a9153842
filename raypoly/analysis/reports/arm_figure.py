"""Charts of arms: pass@k, strategies, and curves over the steps. A line is an arm's mean, a band its seeds' range.

draw_experiment("mine", compare_arms(results))            # PNG
comparison_panels(compare_runs(runs), comparisons)        # for a page on several runs
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.typing import LineStyleType

from raypoly.analysis.experiments.arm_comparison import ArmComparison, SeedSpread
from raypoly.analysis.experiments.compared_runs import ComparedRun
from raypoly.analysis.experiments.run_result import STRATEGIES
from raypoly.analysis.reports import figures
from raypoly.analysis.reports.run_table import shown_ks
from raypoly.run.run_files import RunFiles

Curve = Sequence[tuple[int, float]]
"""(step, value) of a run."""
_SIZE = 13, 9  # inches of one comparison's four panels
# Okabe & Ito's palette (2008) for colour-blind readers, less yellow, which is faint on white.
_OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
# An arm that lies on another leaves it to be seen. Dashed and dotted stand for other things.
_LINES = ("-", "-.", (0, (5, 1, 1, 1, 1, 1)))
_TRAINING: Mapping[str, str] = {
    "reward": "Reward of training rollouts",
    "strategies": "Strategies of training rollouts, judged",
    "strategies_correct": "Distinct correct strategies of training rollouts",
}


@dataclass(frozen=True)
class ArmStyle:
    colour: str
    line: LineStyleType


def _styles(names: Iterable[str]) -> dict[str, ArmStyle]:
    """By the arms' names; 21 look different."""
    return {
        name: ArmStyle(_OKABE_ITO[place % len(_OKABE_ITO)], _LINES[place % len(_LINES)])
        for place, name in enumerate(names)
    }


def draw_experiment(name: str, comparisons: Sequence[ArmComparison]) -> bytes:
    """PNG. Comparisons without a finished run are left out."""
    shown = [comparison for comparison in comparisons if any(arm.runs for arm in comparison.arms)]
    drawing = figures.new_figure(_SIZE[0], _SIZE[1] * max(1, len(shown)), dpi=90)
    drawing.suptitle(name if shown else f"{name}: no run is finished yet", fontsize=12)
    for part, comparison in zip(drawing.subfigures(max(1, len(shown)), 1, squeeze=False).flat, shown, strict=False):
        _draw_comparison(part, comparison)
    return figures.png_of(drawing)


def _draw_comparison(part: SubFigure, comparison: ArmComparison) -> None:
    panels = part.subplots(2, 2)
    for axes, panel in zip(panels.flat, experiment_panels(comparison).values(), strict=True):
        panel.draw(axes)
    figures.clean_axes(panels.flat, grid=True)
    part.suptitle("stages" if comparison.steps is None else f"{comparison.steps} steps", fontsize=11)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    part.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8, frameon=False)


def experiment_panels(comparison: ArmComparison) -> dict[str, figures.Panel]:
    """The four panels by name."""
    known: dict[str, Any] = {"comparison": comparison, "styles": _styles(arm.name for arm in comparison.arms)}
    over_steps = partial(_arms_over_steps, **known)
    correct = "Correct strategies in training (dotted: judged)"
    draw: Mapping[str, tuple[str, Callable[[Axes], None]]] = {
        "coverage": ("pass@k by k on test, before and after", partial(_coverage, **known)),
        "strategies": ("distinct correct strategies by arm", partial(_strategies, **known)),
        "reward": ("reward over the steps", partial(over_steps, curve="reward", title=_TRAINING["reward"])),
        "strategies_over_steps": (
            "correct strategies over the steps",
            partial(over_steps, curve="strategies_correct", title=correct),
        ),
    }
    return {name: figures.Panel(*panel) for name, panel in draw.items()}


def comparison_panels(runs: Sequence[ComparedRun], comparisons: Sequence[ArmComparison]) -> list[figures.Panel]:
    """Those that have something to draw; a run that can't be read has no line."""
    styles = _styles(dict.fromkeys(run.result.arm for run in runs))
    runs = [run for run in runs if not run.result.trouble]
    panels = []
    for comparison in comparisons:
        if any(arm.runs for arm in comparison.arms):
            draw = partial(_coverage, comparison=comparison, styles=styles)
            after = f"after {comparison.steps} steps" if len(comparisons) > 1 else "after"
            panels.append(_with_legend(f"pass@k by k on test, before and {after}", draw))
    for key, title in _TRAINING.items():
        panels += _runs_over_steps(runs, styles, title, partial(_training, key=key), smoothed=True)
    ks = shown_ks(each["pass_at_k"] for run in runs for each in _validations(run.files))
    for k in dict.fromkeys((*ks[:1], *ks[-1:])):
        panels += _runs_over_steps(runs, styles, f"pass@{k} on validation", partial(_validation, k=k), smoothed=False)
    return panels


def _runs_over_steps(
    runs: Sequence[ComparedRun],
    styles: Mapping[str, ArmStyle],
    title: str,
    curve: Callable[[RunFiles], Curve],
    smoothed: bool,
) -> list[figures.Panel]:
    """One panel; none where no run has the measure."""
    curves: dict[str, list[Curve]] = {name: [] for name in styles}
    for run in runs:
        curves[run.result.arm].append(curve(run.files))
    if not any(points for found in curves.values() for points in found):
        return []

    def draw(axes: Axes) -> None:
        for name, found in curves.items():
            _seed_curves(axes, name, found, styles[name], smoothed)
        _step_axes(axes, title)

    return [_with_legend(f"{title}, over the steps", draw)]


def _with_legend(shows: str, draw: Callable[[Axes], Any]) -> figures.Panel:
    def both(axes: Axes) -> None:
        draw(axes)
        figures.legend_below(axes, 2)

    return figures.Panel(shows, both)


def _training(run: RunFiles, key: str) -> Curve:
    return [(row["step"], row[key]) for row in run.rows if row.get(key) is not None]


def _validation(run: RunFiles, k: str) -> Curve:
    known = [each for each in _validations(run) if each["pass_at_k"].get(k) is not None]
    return sorted((each["step"], each["pass_at_k"][k]) for each in known)


def _validations(run: RunFiles) -> list[Mapping[str, Any]]:
    return [each for each in run.evaluations if each["split"] == "validation"]


def _coverage(axes: Axes, comparison: ArmComparison, styles: Mapping[str, ArmStyle]) -> None:
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
    _mean_and_range(axes, ks, found, style, name, label=name, marker="o", markersize=3)


def _strategies(axes: Axes, comparison: ArmComparison, styles: Mapping[str, ArmStyle]) -> None:
    known = [(arm.name, spread) for arm in reversed(comparison.arms) if (spread := arm.after(STRATEGIES))]
    for name, spread in known:
        reach = [[spread.mean - spread.low], [spread.high - spread.mean]]
        whisker = {"linewidth": 1, "capsize": 3}
        axes.barh(name, spread.mean, color=styles[name].colour, alpha=0.8, xerr=reach, error_kw=whisker)
    for start in comparison.starts:
        if before := start.before(STRATEGIES):
            axes.axvline(before.mean, color=figures.GREY, linestyle="--", linewidth=1)
    axes.set(title="Distinct correct strategies in 8, test split", xlabel="dashed: before")


def _arms_over_steps(
    axes: Axes, comparison: ArmComparison, styles: Mapping[str, ArmStyle], curve: str, title: str
) -> None:
    for arm in (arm for arm in comparison.arms if arm.runs):
        style = styles[arm.name]
        _seed_curves(axes, arm.name, [run.curves.get(curve, ()) for run in arm.runs], style)
        judged = [run.curves.get(f"{curve}_judged", ()) for run in arm.runs]
        _seed_curves(axes, f"{arm.name}, judged", judged, ArmStyle(style.colour, ":"), in_legend=False)
    _step_axes(axes, title)


def _step_axes(axes: Axes, title: str) -> None:
    axes.set_title(title)
    figures.steps_axis(axes)
    figures.from_zero(axes)


def _seed_curves(
    axes: Axes, name: str, curves: Sequence[Curve], style: ArmStyle, smoothed: bool = True, in_legend: bool = True
) -> None:
    # Over the steps that all of the runs have.
    found = []
    for points in filter(None, curves):
        values = [value for _, value in points]
        smooth = figures.running_mean(values) if smoothed else values
        found.append(dict(zip((step for step, _ in points), smooth, strict=True)))
    steps = sorted(set.intersection(*map(set, found))) if found else []
    spreads = [spread for step in steps if (spread := SeedSpread.of(values[step] for values in found))]
    _mean_and_range(axes, steps, spreads, style, name, **({"label": name} if in_legend else {"gid": name}))


def _mean_and_range(
    axes: Axes, places: Sequence[int], spreads: Sequence[SeedSpread], style: ArmStyle, name: str, **more: Any
) -> None:
    if not places:
        return
    axes.plot(places, [s.mean for s in spreads], color=style.colour, linestyle=style.line, linewidth=1.5, **more)
    if max(s.count for s in spreads) > 1:
        low, high = [s.low for s in spreads], [s.high for s in spreads]
        axes.fill_between(places, low, high, color=style.colour, alpha=0.15, linewidth=0)
        # the edges are lines too: a table of the chart's numbers reads lines
        for edge, values in (("least", low), ("most", high)):
            axes.plot(places, values, color=style.colour, alpha=0.3, linewidth=0.5, gid=f"{name}, {edge}")
