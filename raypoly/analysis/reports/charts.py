"""Charts of a run and of arms: rewards, pass@k and strategies over the steps, coverage by k, and what steps waited for.

draw_run(run)                                             # PNG; the same panels for a paper: run_panels(run)
draw_experiment("mine", compare_arms(results))            # PNG
comparison_panels(compare_runs(runs), comparisons)        # for a notebook on several runs

A line of an arm is the mean of its runs, a band their range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes

from raypoly.analysis.experiments.arm_comparison import ArmComparison, SeedSpread
from raypoly.analysis.experiments.compared_runs import ComparedRun
from raypoly.analysis.experiments.run_result import STRATEGIES, VALIDATION
from raypoly.analysis.reports import figures
from raypoly.analysis.reports.figures import Panel
from raypoly.analysis.reports.run_table import WAITS, Rows, first_and_last, shown_ks
from raypoly.core.config import Config
from raypoly.run.run_files import RunFiles

Curve = Sequence[tuple[int, float]]
"""(step, value) of a run."""
Style = Mapping[str, Any]
"""Colour and line of an arm, as matplotlib takes them; its name is the `label`."""
_SHADES = (figures.MIDDLE_BLUE, figures.GREEN, figures.ORANGE, figures.PINK, figures.PURPLE, figures.DARK_BLUE)
_WAIT_COLOURS = dict(zip(WAITS, (*_SHADES, figures.GREY), strict=True))
_MOST_BARS = 60  # with more steps than this, neighbouring steps share a bar, which shows their mean
# Okabe & Ito's palette (2008) for colour-blind readers, less yellow, which is faint on white.
_OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
# An arm that lies on another leaves it to be seen. Dashed and dotted stand for other things.
_LINES = ("-", "-.", (0, (5, 1, 1, 1, 1, 1)))
_FRONTIER = "pass@k over pass@1 on validation: each arm a path over its steps"
_TRAINING: Mapping[str, str] = {
    "reward": "Reward of training rollouts",
    "strategies": "Strategies of training rollouts, judged",
    "strategies_correct": "Distinct correct strategies of training rollouts",
}


def _points(rows: Rows, key: str) -> Curve:
    return [(int(row["step"]), float(row[key])) for row in rows if row.get(key) is not None]


def _with_ks(evaluations: Rows, split: str | None = None) -> list[Mapping[str, Any]]:
    return [{**e, **e["pass_at_k"]} for e in evaluations if split in (None, e["split"])]


def draw_run(run: RunFiles) -> bytes:
    """PNG of the run's curves; panels without data say so."""
    title = f"{run.config.objective.name}, seed {run.config.train.seed}  ({run.name})"
    return figures.draw_grid(title, {"": run_panels(run)}, columns=3)


def run_panels(run: RunFiles) -> list[Panel]:
    """The three panels of `draw_run`."""
    known: dict[str, Any] = {"rows": run.rows, "evaluations": run.evaluations}
    return [
        Panel("pass@k and reward over the steps", partial(_pass_over_steps, **known)),
        Panel("strategies over the steps", partial(_strategies_over_steps, **known, config=run.config)),
        Panel("pass@k by k before and after", partial(_pass_over_k, summary=run.summary)),
    ]


def time_panels(rows: Rows) -> list[Panel]:
    """The mean step as a waterfall, and each step's stack of what it waited for; none without steps."""
    timed = [row for row in rows if row.get("exposed")]
    if not timed:
        return []
    return [
        Panel("what the mean step waited for", partial(_mean_step, rows=timed)),
        Panel("what each step waited for", partial(_waits_over_steps, rows=timed)),
    ]


def _pass_over_steps(axes: Axes, rows: Rows, evaluations: Rows) -> None:
    _raw_and_smooth(axes, _points(rows, "reward"), figures.GREY, "reward, training rollouts")
    measured = _with_ks(evaluations)
    ks = shown_ks(each["pass_at_k"] for each in evaluations)
    for k, colour in zip(ks, colormaps["Blues"](np.linspace(0.35, 1.0, len(ks))), strict=True):
        _evaluated(axes, measured, k, f"pass@{k}", color=colour)
    _mark_splits(axes, evaluations)
    low, high = axes.dataLim.intervaly  # a reward of the user's own may be any number
    axes.set_ylim(min(0.0, 1.02 * low), max(1.02, 1.02 * high))
    figures.steps_axis(axes, "Passing over the steps", ylabel="share of problems (pass@k), mean reward")


def _strategies_over_steps(axes: Axes, rows: Rows, evaluations: Rows, config: Config) -> None:
    """The judge's count beside counts that the policy was not trained on; by structure only where it differs."""
    by_structure = config.judge.name == "structural"
    for key, colour, label in (
        ("strategies", figures.GREY, "all, judged"),
        ("strategies_structural", figures.PURPLE, "all, by structure"),
        ("strategies_correct", figures.GREEN, "correct, by execution"),
        ("strategies_correct_judged", figures.MIDDLE_BLUE, "correct, judged"),
    ):
        if key == "strategies_structural" and by_structure and _points(rows, "strategies"):
            continue
        _raw_and_smooth(axes, _points(rows, key), colour, f"{label} (N={config.train.rollouts})")
    # what may lie on another curve is dashed and hollow: both are seen
    hollow = {"markerfacecolor": "none", "markersize": 9}
    _evaluated(axes, evaluations, "strategies_correct", "correct in 8, by execution", color=figures.ORANGE)
    label = "correct in 8, by the judge"
    _evaluated(axes, evaluations, "strategies_correct_judge", label, "--", color=figures.BLUE, **hollow)
    if not (by_structure and _points(evaluations, "strategies_correct_judge")):
        label = "correct in 8, by structure"
        _evaluated(axes, evaluations, "strategies_correct_structural", label, ":", color=figures.PURPLE, **hollow)
    _mark_splits(axes, evaluations)
    figures.steps_axis(axes, "Strategies over the steps", ylabel="distinct strategies in N rollouts of a problem")
    axes.set_ylim(bottom=0)
    if agreement := _points(rows, "judge_agreement"):
        _agreement_over_steps(axes, agreement)


def _agreement_over_steps(axes: Axes, points: Curve) -> None:
    style: dict[str, Any] = {"linestyle": ":", "linewidth": 1, "marker": "D", "markersize": 4, "color": figures.PINK}
    name = "the judge's agreement with gold groups"
    right = axes.twinx()
    right.plot(*zip(*points, strict=True), **style)
    right.set_ylabel(name, color=figures.PINK)
    right.set_ylim(min(0.0, *(value for _, value in points)), 1.02)
    right.tick_params(axis="y", colors=figures.PINK)
    right.spines[["top", "left"]].set_visible(False)
    axes.plot([], [], label="agreement (right)", **style)


def _pass_over_k(axes: Axes, summary: Mapping[str, Any]) -> None:
    ticks: list[str] = []
    sides = zip(("before", "after"), first_and_last(summary), (figures.GREY, figures.BLUE), strict=True)
    for label, evaluation, colour in sides:
        if evaluation is not None:
            ticks = sorted(evaluation["pass_at_k"], key=int)
            ks, values = [int(k) for k in ticks], [evaluation["pass_at_k"][k] for k in ticks]
            label = f"{label} (step {evaluation['step']})"
            axes.plot(ks, values, marker="o", markersize=4, color=colour, label=label)
    figures.samples_axis(axes, ticks, "Coverage on the test split")


def _evaluated(axes: Axes, evaluations: Rows, key: str, label: str, line: str = "-", **style: Any) -> None:
    # Validation as a line, test as stars, with one entry in the legend.
    entry = {"label": label}
    for split, own in (
        ("validation", {"linestyle": line, "marker": "o", "markersize": 4}),
        ("test", {"linestyle": "none", "marker": "*", "markersize": 10}),
    ):
        points = _points([each for each in evaluations if each["split"] == split], key)
        if points:
            axes.plot(*zip(*points, strict=True), **{**own, **style, **entry})
            entry = {}


def _mark_splits(axes: Axes, evaluations: Rows) -> None:
    for split, marker in (("validation", "o"), ("test", "*")):
        if any(e["split"] == split for e in evaluations):
            axes.plot([], [], linestyle="none", marker=marker, color="black", label=f"{split} split")


def _raw_and_smooth(axes: Axes, points: Curve, colour: str, label: str) -> None:
    if not points:
        return
    steps, values = zip(*points, strict=True)
    axes.plot(steps, values, color=colour, alpha=0.25, linewidth=1)
    axes.plot(steps, figures.running_mean(values), color=colour, linewidth=1.6, label=label)


def _mean_step(axes: Axes, rows: Rows) -> None:
    # Each bar begins where the bar above it ends: together they are the step.
    begin = 0.0
    stages = _stages(rows)
    for place, stage in enumerate(stages):
        exposed = _mean(rows, "exposed", stage)
        axes.barh(place, exposed, left=begin, color=_WAIT_COLOURS[stage])
        busy = "" if stage == "idle" else f", {_mean(rows, 'seconds', stage):.2f} at work"
        axes.annotate(f"{exposed:.2f} s{busy}", (begin + exposed, place), (4, 0), textcoords="offset points",
                      va="center", fontsize=8)  # fmt: skip
        begin += exposed
    axes.set_yticks(range(len(stages)), stages)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.6 * begin or 1.0)
    axes.set(title="The mean step: what it waited for", xlabel="seconds")


def _waits_over_steps(axes: Axes, rows: Rows) -> None:
    width = -(-len(rows) // _MOST_BARS)
    bins = [rows[i : i + width] for i in range(0, len(rows), width)]
    steps = [float(some[0]["step"]) for some in bins]
    floor = [0.0] * len(bins)
    for stage in _stages(rows):
        values = [_mean(some, "exposed", stage) for some in bins]
        axes.bar(steps, values, 0.9 * width, bottom=floor, color=_WAIT_COLOURS[stage], label=stage, align="edge")
        floor = [low + value for low, value in zip(floor, values, strict=True)]
    means = f" (means of {width} steps)" if width > 1 else ""
    figures.steps_axis(axes, f"Steps: what they waited for{means}", ylabel="seconds")


def _stages(rows: Rows) -> list[str]:
    # `cross` only where a step waited for it.
    return [stage for stage in WAITS if stage != "cross" or any(stage in row["exposed"] for row in rows)]


def _mean(rows: Rows, key: str, stage: str) -> float:
    return float(sum(row[key].get(stage, 0.0) for row in rows)) / len(rows)


def _styles(names: Iterable[str]) -> dict[str, Style]:
    return {
        name: {"color": _OKABE_ITO[place % len(_OKABE_ITO)], "linestyle": _LINES[place % len(_LINES)], "label": name}
        for place, name in enumerate(dict.fromkeys(names))
    }


def draw_experiment(name: str, comparisons: Sequence[ArmComparison]) -> bytes:
    """PNG. Comparisons without a finished run are left out."""
    parts = {
        "stages" if comparison.steps is None else f"{comparison.steps} steps": [*experiment_panels(comparison).values()]
        for comparison in comparisons
        if any(arm.runs for arm in comparison.arms)
    }
    return figures.draw_grid(name if parts else f"{name}: no run is finished yet", parts, columns=2)


def experiment_panels(comparison: ArmComparison) -> dict[str, Panel]:
    """The panels by name; `frontier` where all runs were measured on validation."""
    styles = _styles(arm.name for arm in comparison.arms)
    known: dict[str, Any] = {"comparison": comparison, "styles": styles}

    def curves(key: str, **style: str) -> list[tuple[Style, list[Curve]]]:
        return [
            ({**styles[arm.name], **style}, [run.curves.get(key, ()) for run in arm.runs]) for arm in comparison.arms
        ]

    judged = curves("strategies_correct_judged", linestyle=":")
    dotted = [({**style, "label": None}, found) for style, found in judged]
    correct = [*curves("strategies_correct"), *dotted]
    frontier = {"frontier": Panel(_FRONTIER, partial(_frontier, **known))} if _validated(comparison) else {}
    return frontier | {
        "coverage": Panel("pass@k by k on test, before and after", partial(_coverage, **known)),
        "strategies": Panel("distinct correct strategies by arm", partial(_strategies_by_arm, **known)),
        "reward": _over_steps("reward", curves("reward"), title=_TRAINING["reward"]),
        "strategies_over_steps": _over_steps(
            "correct strategies", correct, title="Correct strategies in training (dotted: judged)"
        ),
    }


def comparison_panels(runs: Sequence[ComparedRun], comparisons: Sequence[ArmComparison]) -> list[Panel]:
    """Those that have something to draw; a run that can't be read has no line."""
    styles = _styles(run.result.arm for run in runs)
    files = [(run.result.arm, run.files) for run in runs if not run.result.trouble]

    def curves(rows_of: Callable[[RunFiles], Rows], key: str) -> list[tuple[Style, list[Curve]]]:
        found = [(arm, sorted(_points(rows_of(run), key))) for arm, run in files]
        return [(style, [curve for arm, curve in found if arm == name]) for name, style in styles.items()]

    panels = []
    for comparison in comparisons:
        if any(arm.runs for arm in comparison.arms):
            after = f"after {comparison.steps} steps" if len(comparisons) > 1 else "after"
            draw = partial(_coverage, comparison=comparison, styles=styles)
            panels.append(Panel(f"pass@k by k on test, before and {after}", draw))
    measured = {title: curves(lambda run: run.rows, key) for key, title in _TRAINING.items()}
    ks = shown_ks(each["pass_at_k"] for _, run in files for each in _with_ks(run.evaluations, "validation"))
    for k in dict.fromkeys((*ks[:1], *ks[-1:])):
        measured[f"pass@{k} on validation"] = curves(lambda run: _with_ks(run.evaluations, "validation"), k)
    for title, found in measured.items():
        if any(points for _, of_arm in found for points in of_arm):
            panels.append(_over_steps(title, found, title, smoothed=not title.endswith("validation")))
    return panels


def _over_steps(shows: str, arms: Sequence[tuple[Style, Sequence[Curve]]], title: str, smoothed: bool = True) -> Panel:

    def draw(axes: Axes) -> None:
        for style, curves in arms:
            _seed_curves(axes, style, curves, smoothed)
        figures.steps_axis(axes, title)
        if axes.dataLim.y0 >= 0:  # a reward of the user's own may be below
            axes.set_ylim(bottom=0)

    return Panel(f"{shows}, over the steps", draw)


def _coverage(axes: Axes, comparison: ArmComparison, styles: Mapping[str, Style]) -> None:
    ks = [measure for measure in comparison.measures if measure != STRATEGIES]
    for start in comparison.starts:
        name = "before" if len(comparison.starts) == 1 else f"before {', '.join(start.arms)}"
        style = {"color": figures.GREY, "linestyle": "--", "label": name}
        _over_k(axes, {k: start.before(k) for k in ks}, style)
    for arm in comparison.arms:
        _over_k(axes, {k: arm.after(k) for k in ks}, styles[arm.name])
    figures.samples_axis(axes, ks, "Coverage on the test split")


def _validated(comparison: ArmComparison) -> Sequence[str]:
    """The curves of pass@1 and of pass@k that all finished runs have; none where there are not two."""
    of_runs = [
        [name for name in run.curves if name.startswith(VALIDATION)] for arm in comparison.arms for run in arm.runs
    ]
    shared = [name for name in (of_runs or [[]])[0] if all(name in names for names in of_runs)]
    return shared if len(shared) == 2 else ()


def _frontier(axes: Axes, comparison: ArmComparison, styles: Mapping[str, Style]) -> None:
    """Of equal pass@1, more coverage is higher; a path that falls pays for one with the other. Means over seeds."""
    across, up = _validated(comparison)
    for arm in comparison.arms:
        sides = [[dict(run.curves[name]) for run in arm.runs] for name in (across, up)]
        steps = sorted(set.intersection(*(set(points) for side in sides for points in side))) if arm.runs else []
        means = [[float(np.mean([points[step] for points in side])) for step in steps] for side in sides]
        path = [*zip(*means, strict=True)]
        if path:
            axes.plot(*means, linewidth=1.2, marker="o", markersize=2.5, **styles[arm.name])
            (x, y) = path[-1]
            axes.plot(x, y, marker="o", markersize=7, color=styles[arm.name]["color"])
            axes.annotate(str(steps[-1]), (x, y), (5, 4), textcoords="offset points", fontsize=7)
    axes.set(title="Coverage over accuracy, validation", xlabel="pass@1", ylabel=up.removeprefix("validation "))


def _over_k(axes: Axes, spreads: Mapping[str, SeedSpread | None], style: Style) -> None:
    known = {int(k): spread for k, spread in spreads.items() if spread is not None}
    _mean_and_range(axes, known, {**style, "marker": "o", "markersize": 3})


def _strategies_by_arm(axes: Axes, comparison: ArmComparison, styles: Mapping[str, Style]) -> None:
    known = [(arm.name, spread) for arm in reversed(comparison.arms) if (spread := arm.after(STRATEGIES))]
    for name, spread in known:
        reach = [[spread.mean - spread.low], [spread.high - spread.mean]]
        whisker = {"linewidth": 1, "capsize": 3}
        axes.barh(name, spread.mean, color=styles[name]["color"], alpha=0.8, xerr=reach, error_kw=whisker)
    for start in comparison.starts:
        if before := start.before(STRATEGIES):
            axes.axvline(before.mean, color=figures.GREY, linestyle="--", linewidth=1)
    axes.set(title="Distinct correct strategies in 8, test split", xlabel="dashed: before")


def _seed_curves(axes: Axes, style: Style, curves: Sequence[Curve], smoothed: bool) -> None:
    # Over the steps that all of the runs have.
    found = []
    for points in filter(None, curves):
        steps, values = zip(*points, strict=True)
        found.append(dict(zip(steps, figures.running_mean(values) if smoothed else values, strict=True)))
    shared = sorted(set.intersection(*map(set, found))) if found else []
    spreads = {step: SeedSpread.of(values[step] for values in found) for step in shared}
    _mean_and_range(axes, {step: spread for step, spread in spreads.items() if spread is not None}, style)


def _mean_and_range(axes: Axes, spreads: Mapping[int, SeedSpread], style: Style) -> None:
    if not spreads:
        return
    places, found = list(spreads), list(spreads.values())
    axes.plot(places, [spread.mean for spread in found], linewidth=1.5, **style)
    if max(spread.count for spread in found) > 1:
        low, high = [spread.low for spread in found], [spread.high for spread in found]
        colour = style["color"]
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        for values in (low, high):
            axes.plot(places, values, color=colour, alpha=0.3, linewidth=0.5)
