"""One figure: pass@k over the steps, strategies over the steps, and pass@k against k before and after."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from raypoly.config import Config
from raypoly.reports.run_table import KS, first_and_last

if TYPE_CHECKING:
    from raypoly.run import Run

BLUES = ("#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08306b")
ORANGE, GREEN, GREY, PURPLE, PINK = "#d95f02", "#1b9e77", "#999999", "#7570b3", "#e7298a"
SMOOTHING = 5
"""Steps in the running mean of the noisy per-step curves."""


def figure(run: Run) -> bytes:
    """PNG of the run's curves, from metrics.jsonl and summary.json; panels without data say so."""
    drawing = Figure(figsize=(16, 5.2), dpi=110, layout="constrained")
    FigureCanvasAgg(drawing)
    left, middle, right = drawing.subplots(1, 3)
    rows, evaluations = run.rows, run.evaluations
    _pass_over_steps(left, rows, evaluations)
    strategies_over_steps(middle, rows, evaluations, run.config)
    _pass_over_k(right, run.summary)
    for axes in (left, middle, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    drawing.suptitle(f"{run.config.objective.name}, seed {run.config.train.seed}  ({run.name})", fontsize=11)
    png = io.BytesIO()
    drawing.savefig(png, format="png")
    return png.getvalue()


def over_steps(axes: Axes) -> None:
    """Its horizontal axis counts steps: no tick lies between two."""
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _pass_over_steps(axes: Axes, rows: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> None:
    steps, rewards = _series(rows, "reward")
    _raw_and_smooth(axes, steps, rewards, GREY, "reward, training rollouts")
    for k, colour in zip(KS, BLUES, strict=True):
        _evaluated(axes, evaluations, _pass_at(k), colour, f"pass@{k}")
    _mark_splits(axes, evaluations)
    axes.set(title="Passing over the steps", ylabel="share of problems (pass@k), mean reward", ylim=(0, 1.02))
    over_steps(axes)
    _legend(axes)


def strategies_over_steps(
    axes: Axes, rows: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]], config: Config
) -> None:
    """Each count stands beside one that the policy was not trained to please; a judge's own twin is left out."""
    by_structure = config.judge.name == "structural"
    for key, colour, label in (
        ("strategies", GREY, "all, judged"),
        ("strategies_structural", PURPLE, "all, by structure"),
        ("strategies_correct", GREEN, "correct, by execution"),
    ):
        if key == "strategies_structural" and by_structure and _series(rows, "strategies")[0]:
            continue
        steps, values = _series(rows, key)
        _raw_and_smooth(axes, steps, values, colour, f"{label} (N={config.train.rollouts})")
    _evaluated(axes, evaluations, lambda e: e.get("strategies_correct"), ORANGE, "correct in 8, by execution")
    _evaluated(axes, evaluations, lambda e: e.get("strategies_correct_judge"), BLUES[3], "correct in 8, by the judge")
    if not (by_structure and any(e.get("strategies_correct_judge") is not None for e in evaluations)):
        label = "correct in 8, by structure"
        _evaluated(axes, evaluations, lambda e: e.get("strategies_correct_structural"), PURPLE, label, "--")
    _mark_splits(axes, evaluations)
    axes.set(title="Strategies over the steps", ylabel="distinct strategies in N rollouts of a problem")
    over_steps(axes)
    axes.set_ylim(bottom=0)
    _agreement_over_steps(axes, rows)
    _legend(axes)


def _agreement_over_steps(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """How far the judge agreed with gold groups, on a scale of its own at the right."""
    steps, values = _series(rows, "judge_agreement")
    if not steps:
        return
    style: dict[str, Any] = {"linestyle": ":", "linewidth": 1, "marker": "D", "markersize": 4, "color": PINK}
    right = axes.twinx()
    right.plot(steps, values, **style)
    right.set_ylabel("the judge's agreement with gold groups", color=PINK)
    right.set_ylim(min(0.0, *values), 1.02)
    right.tick_params(axis="y", colors=PINK)
    right.spines[["top", "left"]].set_visible(False)
    axes.plot([], [], label="agreement (right)", **style)


def _pass_over_k(axes: Axes, summary: Mapping[str, Any]) -> None:
    before, after = first_and_last(summary)
    for evaluation, colour, label in ((before, GREY, "before"), (after, BLUES[3], "after")):
        if evaluation is None:
            continue
        ks = sorted(map(int, evaluation["pass_at_k"]))
        values = [evaluation["pass_at_k"][str(k)] for k in ks]
        axes.plot(ks, values, marker="o", markersize=4, color=colour, label=f"{label} (step {evaluation['step']})")
        axes.set_xscale("log", base=2)
        axes.set_xticks(ks, [str(k) for k in ks])
    axes.set(title="Coverage on the test split", xlabel="k samples a problem", ylabel="pass@k", ylim=(0, 1.02))
    _legend(axes)


def _pass_at(k: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda evaluation: evaluation["pass_at_k"].get(k)


def _evaluated(
    axes: Axes,
    evaluations: Sequence[Mapping[str, Any]],
    value: Callable[[Mapping[str, Any]], float | None],
    colour: str,
    label: str,
    line: str = "-",
) -> None:
    """One measure at each evaluation: validation as a line, test as stars, one entry in the legend."""
    for split, style in (("validation", line), ("test", "none")):
        points = [(e["step"], value(e)) for e in evaluations if e["split"] == split and value(e) is not None]
        if points:
            marker, size = ("o", 4) if split == "validation" else ("*", 10)
            named = label if axes.get_legend_handles_labels()[1][-1:] != [label] else None
            axes.plot(
                *zip(*points, strict=True), linestyle=style, marker=marker, markersize=size, color=colour, label=named
            )


def _mark_splits(axes: Axes, evaluations: Sequence[Mapping[str, Any]]) -> None:
    """Say once what dots and stars are."""
    for split, marker in (("validation", "o"), ("test", "*")):
        if any(e["split"] == split for e in evaluations):
            axes.plot([], [], linestyle="none", marker=marker, color="black", label=f"{split} split")


def _series(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    known = [(int(row["step"]), float(row[key])) for row in rows if row.get(key) is not None]
    return [step for step, _ in known], [value for _, value in known]


def _raw_and_smooth(axes: Axes, steps: list[int], values: list[float], colour: str, label: str) -> None:
    """The noisy curve faintly, its running mean (over what came before) strongly."""
    if not steps:
        return
    recent = [values[max(0, i + 1 - SMOOTHING) : i + 1] for i in range(len(values))]
    axes.plot(steps, values, color=colour, alpha=0.25, linewidth=1)
    axes.plot(steps, [sum(window) / len(window) for window in recent], color=colour, linewidth=1.6, label=label)


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    else:
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes, color=GREY)
