"""Charts of one run: pass@k and strategies over the steps, pass@k by k before and after, and what steps waited for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from raypoly.analysis.reports import figures
from raypoly.analysis.reports.run_table import WAITS, Rows, first_and_last, shown_ks
from raypoly.core.config import Config
from raypoly.run.run_files import RunFiles

_SHADES = (figures.MIDDLE_BLUE, figures.GREEN, figures.ORANGE, figures.PINK, figures.PURPLE, figures.DARK_BLUE)
_COLOURS = dict(zip(WAITS, (*_SHADES, figures.GREY), strict=True))
_MOST_BARS = 60  # with more steps than this, neighbouring steps share a bar, which shows their mean


def draw_run(run: RunFiles) -> bytes:
    """PNG of the run's curves; panels without data say so."""
    drawing = figures.new_figure(16, 5.2, dpi=110)
    panels = drawing.subplots(1, 3)
    for axes, panel in zip(panels, run_panels(run), strict=True):
        panel.draw(axes)
    figures.clean_axes(panels, grid=True)
    drawing.suptitle(f"{run.config.objective.name}, seed {run.config.train.seed}  ({run.name})", fontsize=11)
    return figures.png_of(drawing)


def run_panels(run: RunFiles) -> list[figures.Panel]:
    """The three panels of `draw_run`."""
    known: dict[str, Any] = {"rows": run.rows, "evaluations": run.evaluations}
    strategies = partial(strategies_over_steps, **known, config=run.config)
    return [
        figures.Panel("pass@k and reward over the steps", partial(_pass_over_steps, **known)),
        figures.Panel("strategies over the steps", strategies),
        figures.Panel("pass@k by k before and after", partial(_pass_over_k, summary=run.summary)),
    ]


def time_panels(rows: Rows) -> list[figures.Panel]:
    """The mean step as a waterfall, and each step's stack of what it waited for; none without steps."""
    timed = [row for row in rows if row.get("exposed")]
    if not timed:
        return []
    return [
        figures.Panel("what the mean step waited for", partial(_mean_step, rows=timed)),
        figures.Panel("what each step waited for", partial(_waits_over_steps, rows=timed)),
    ]


def _pass_over_steps(axes: Axes, rows: Rows, evaluations: Rows) -> None:
    _raw_and_smooth(axes, *_series(rows, "reward"), figures.GREY, "reward, training rollouts")
    curves = [evaluation["pass_at_k"] for evaluation in evaluations]
    ks = shown_ks(curves)
    points = [{**e, **curve} for e, curve in zip(evaluations, curves, strict=True)]
    for k, colour in zip(ks, figures.blues(len(ks)), strict=True):
        _evaluated(axes, points, k, colour, f"pass@{k}")
    _mark_splits(axes, evaluations)
    low, high = axes.dataLim.intervaly  # a reward of the user's own may be any number
    axes.set(title="Passing over the steps", ylabel="share of problems (pass@k), mean reward")
    axes.set_ylim(min(0.0, 1.02 * low), max(1.02, 1.02 * high))
    figures.steps_axis(axes)
    figures.legend_below(axes)


def strategies_over_steps(axes: Axes, rows: Rows, evaluations: Rows, config: Config) -> None:
    """Draw the judge's count of strategies beside counts that the policy was not trained on.

    The count by structure is left out where the structural judge gives the same one.
    """
    by_structure = config.judge.name == "structural"
    for key, colour, label in (
        ("strategies", figures.GREY, "all, judged"),
        ("strategies_structural", figures.PURPLE, "all, by structure"),
        ("strategies_correct", figures.GREEN, "correct, by execution"),
        ("strategies_correct_judged", figures.MIDDLE_BLUE, "correct, judged"),
    ):
        if key == "strategies_structural" and by_structure and _series(rows, "strategies")[0]:
            continue
        _raw_and_smooth(axes, *_series(rows, key), colour, f"{label} (N={config.train.rollouts})")
    _evaluated(axes, evaluations, "strategies_correct", figures.ORANGE, "correct in 8, by execution")
    label = "correct in 8, by the judge" + (" (the same)" if _same_counts(evaluations) else "")
    _evaluated(axes, evaluations, "strategies_correct_judge", figures.BLUE, label, "--", hollow=True)
    if not (by_structure and any(e.get("strategies_correct_judge") is not None for e in evaluations)):
        label = "correct in 8, by structure"
        _evaluated(axes, evaluations, "strategies_correct_structural", figures.PURPLE, label, ":", hollow=True)
    _mark_splits(axes, evaluations)
    axes.set(title="Strategies over the steps", ylabel="distinct strategies in N rollouts of a problem")
    figures.steps_axis(axes)
    axes.set_ylim(bottom=0)
    _agreement_over_steps(axes, rows)
    figures.legend_below(axes)


def _same_counts(evaluations: Rows) -> bool:
    # If the judge counted as execution did, one curve lies on the other.
    ways = ("strategies_correct", "strategies_correct_judge")
    known = [tuple(e[way] for way in ways) for e in evaluations if None not in map(e.get, ways)]
    return bool(known) and all(one == other for one, other in known)


def _agreement_over_steps(axes: Axes, rows: Rows) -> None:
    steps, values = _series(rows, "judge_agreement")
    if not steps:
        return
    style: dict[str, Any] = {"linestyle": ":", "linewidth": 1, "marker": "D", "markersize": 4, "color": figures.PINK}
    right = axes.twinx()
    right.plot(steps, values, gid="the judge's agreement with gold groups", **style)
    right.set_ylabel("the judge's agreement with gold groups", color=figures.PINK)
    right.set_ylim(min(0.0, *values), 1.02)
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
    figures.legend_below(axes)


def _evaluated(
    axes: Axes, evaluations: Rows, key: str, colour: str, label: str, line: str = "-", hollow: bool = False
) -> None:
    # Validation as a line, test as stars, with one entry in the legend.
    # What may lie on another curve is dashed and hollow: both are seen.
    style_of: dict[str, Any] = {"color": colour} | ({"markerfacecolor": "none"} if hollow else {})
    for split, style in (("validation", line), ("test", "none")):
        points = [(e["step"], e[key]) for e in evaluations if e["split"] == split and e.get(key) is not None]
        if points:
            marker, size = ("o", 4 + 3 * hollow) if split == "validation" else ("*", 10 + 5 * hollow)
            named = label if axes.get_legend_handles_labels()[1][-1:] != [label] else None
            axes.plot(*zip(*points, strict=True), linestyle=style, marker=marker, markersize=size, label=named,
                      gid=f"{label}, {split}", **style_of)  # fmt: skip


def _mark_splits(axes: Axes, evaluations: Rows) -> None:
    for split, marker in (("validation", "o"), ("test", "*")):
        if any(e["split"] == split for e in evaluations):
            axes.plot([], [], linestyle="none", marker=marker, color="black", label=f"{split} split")


def _series(rows: Rows, key: str) -> tuple[list[int], list[float]]:
    known = [(int(row["step"]), float(row[key])) for row in rows if row.get(key) is not None]
    return [step for step, _ in known], [value for _, value in known]


def _raw_and_smooth(axes: Axes, steps: list[int], values: list[float], colour: str, label: str) -> None:
    if not steps:
        return
    axes.plot(steps, values, color=colour, alpha=0.25, linewidth=1, gid=label)
    smooth = f"{label}: mean of {figures.SMOOTHING}"
    axes.plot(steps, figures.running_mean(values), color=colour, linewidth=1.6, label=label, gid=smooth)


def _mean_step(axes: Axes, rows: Rows) -> None:
    # Each bar begins where the bar above it ends: together they are the step.
    begin = 0.0
    stages = _stages(rows)
    for place, stage in enumerate(stages):
        exposed = _mean(rows, "exposed", stage)
        axes.barh(place, exposed, left=begin, color=_COLOURS[stage])
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
        axes.bar(steps, values, 0.9 * width, bottom=floor, color=_COLOURS[stage], label=stage, align="edge")
        floor = [low + value for low, value in zip(floor, values, strict=True)]
    means = f" (means of {width} steps)" if width > 1 else ""
    axes.set(title=f"Steps: what they waited for{means}", ylabel="seconds")
    figures.steps_axis(axes)
    figures.legend_below(axes, 4)


def _stages(rows: Rows) -> list[str]:
    # `cross` only where a step waited for it.
    return [stage for stage in _COLOURS if stage != "cross" or any(stage in row["exposed"] for row in rows)]


def _mean(rows: Rows, key: str, stage: str) -> float:
    return float(sum(row[key].get(stage, 0.0) for row in rows)) / len(rows)
