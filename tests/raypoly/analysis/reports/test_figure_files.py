"""Panels and tables as files for a paper."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from raypoly import Run
from raypoly.analysis.experiments.arm_comparison import compare_arms
from raypoly.analysis.experiments.compared_runs import compare_runs
from raypoly.analysis.experiments.run_result import VALIDATION, RunResult
from raypoly.analysis.reports.charts import comparison_panels, experiment_panels, run_panels
from raypoly.analysis.reports.comparison_tables import comparison_tables
from raypoly.analysis.reports.figures import SMALLEST, WIDTH, Panel, draw_grid, write_figures
from raypoly.cli import main
from raypoly.core.errors import UsageError
from raypoly.core.tables import ReportTable
from tests.raypoly.analysis.experiments.made_experiments import made_result
from tests.support.long_run import write_long_run

ARMS = ("grpo", "poly_epo", *(f"arm_{number}" for number in range(8)))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_each_panel_and_table_is_a_file_a_column_wide_and_the_same_each_time(tmp_path: Path) -> None:
    (comparison,) = compare_arms([made_result(arm, 0, after=0.1 * place) for place, arm in enumerate(ARMS)])
    for name in ("one", "two"):
        tables = {**comparison_tables(comparison), "difference_from_/runs/floor=0.1": ReportTable(("", "p"), [])}
        write_figures(tmp_path / name, experiment_panels(comparison), tables)
    found = files_of(tmp_path / "one")
    assert found == files_of(tmp_path / "two")
    panels = ("coverage", "reward", "strategies", "strategies_over_steps")
    names = ("difference_from_grpo", "difference_from__runs_floor=0.1", "results")
    assert set(found) == {
        *(f"{name}.{kind}" for name in panels for kind in ("pdf", "svg", "png")),
        *(f"{name}.{kind}" for name in names for kind in ("csv", "tex")),
    }
    for name in panels:
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", found[f"{name}.pdf"])
        assert box is not None
        assert float(box[1]) == pytest.approx(72 * WIDTH)
    rows = list(csv.reader(found["results.csv"].decode().splitlines()))
    assert rows[0][:3] == ["", "runs", "pass@1"]
    assert [row[0] for row in rows[1:]] == ["before", *ARMS]


def test_the_frontier_is_a_path_of_means_over_the_steps_that_all_seeds_have() -> None:
    def run(arm: str, seed: int, *points: tuple[int, float, float]) -> RunResult:
        curves = {
            f"{VALIDATION}1": [(s, one) for s, one, _ in points],
            f"{VALIDATION}16": [(s, k) for s, _, k in points],
        }
        return replace(made_result(arm, seed), curves=curves)

    runs = [run("grpo", 0, (0, 0.2, 0.8), (20, 0.5, 0.7)), run("grpo", 1, (0, 0.4, 1.0), (20, 0.7, 0.7), (40, 1, 1))]
    (comparison,) = compare_arms([*runs, run("poly_epo", 0, (0, 0.2, 0.8), (20, 0.6, 0.9))])
    axes = Figure().subplots()
    experiment_panels(comparison)["frontier"].draw(axes)
    paths = {line.get_label(): np.column_stack(line.get_data()).tolist() for line in axes.get_lines()}
    assert paths["grpo"] == [pytest.approx([0.3, 0.9]), pytest.approx([0.6, 0.7])]
    assert paths["poly_epo"] == [[0.2, 0.8], [0.6, 0.9]]
    assert axes.get_ylabel() == "pass@16"
    (unmeasured,) = compare_arms([*runs, made_result("poly_epo", 0)])
    assert "frontier" not in experiment_panels(unmeasured)


def test_no_text_is_smaller_than_seven_points(tmp_path: Path) -> None:
    (comparison,) = compare_arms([made_result(arm, 0) for arm in ARMS])
    seen: list[float] = []

    def watched(name: str, axes: Axes) -> None:
        experiment_panels(comparison)[name].draw(axes)
        axes.figure.draw_without_rendering()  # ticks get their labels
        seen.extend(each.get_fontsize() for each in axes.figure.findobj(Text) if each.get_text())

    for name in experiment_panels(comparison):
        write_figures(tmp_path, {name: Panel(name, partial(watched, name))}, {})
    assert len(seen) > 40
    assert min(seen) >= SMALLEST


@pytest.mark.parametrize("longest", [12, 40, 90])
def test_no_legend_leaves_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: int) -> None:
    seen: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda drawing, *rest, **more: seen.append(drawing))

    def draw(axes: Axes) -> None:
        for number in range(4):
            axes.plot([1, 2], [number, 2], label=f"{number} " + "word " * (longest // 5))

    write_figures(tmp_path, {"legend": Panel("legend", draw)}, {})
    for drawing in seen:
        drawing.draw_without_rendering()
        box = drawing.legends[0].get_window_extent()
        assert drawing.bbox.x0 <= box.x0 < box.x1 <= drawing.bbox.x1
        assert drawing.bbox.y0 <= box.y0 < box.y1 <= drawing.bbox.y1
    assert seen


@pytest.mark.parametrize("rewards", [(-0.9, -0.3), (-1.0, 1.0), (2.0, 7.0), (0.0, 1.0)])
def test_a_reward_of_any_size_is_within_its_axis(tmp_path: Path, rewards: tuple[float, float]) -> None:
    folder = write_long_run(tmp_path / "own", steps=2)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [json.dumps({**line, "reward": reward}) for line, reward in zip(lines, rewards, strict=True)]
    (folder / "metrics.jsonl").write_text("".join(f"{row}\n" for row in rows))
    compared = compare_runs([Run(folder)])
    comparisons = compare_arms([run.result for run in compared])
    panels = [
        *(panel for panel in comparison_panels(compared, comparisons) if panel.shows.startswith("Reward")),
        experiment_panels(comparisons[0])["reward"],
        run_panels(Run(folder))[0],
    ]
    for panel in panels:
        axes = Figure().subplots()
        panel.draw(axes)
        low, high = axes.get_ylim()
        assert low <= axes.dataLim.y0 < axes.dataLim.y1 <= high
        assert low == 0 or min(rewards) < 0


def test_two_dollars_in_a_name_are_no_formula(tmp_path: Path) -> None:
    def draw(axes: Axes) -> None:
        axes.plot([1, 2], [0.1, 0.2], label=r"$5$ or $\nosuch$")
        axes.set_title(r"$\nosuch$")

    write_figures(tmp_path, {"priced": Panel("priced", draw)}, {})
    assert rb"$5$ or $\nosuch$" in (tmp_path / "priced.svg").read_bytes()
    assert draw_grid(r"$\nosuch$", {"$": [Panel("priced", draw)]}, 1).startswith(b"\x89PNG")


def test_latex_takes_no_cell_for_a_command() -> None:
    table = ReportTable(("", "p"), [("**poly_epo**", "< .0001"), ("50 % & more", "-0.12 ±0.01")])
    assert table.latex().splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r" & p \\",
        r"\midrule",
        r"\textbf{poly\_epo} & $<$ .0001 \\",
        r"50 \% \& more & $-$0.12 $\pm$0.01 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


@pytest.mark.parametrize(
    ("command", "name"),
    [(["report", "nowhere"], "taken"), (["experiment", "--config", "nowhere.yaml"], "taken/figures")],
)
def test_a_folder_that_cannot_be_is_told_before_anything_else(
    tmp_path: Path, command: list[str], name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.excepthook", None)
    (tmp_path / "taken").write_text("")
    with pytest.raises(SystemExit) as ended:
        main([*command, "--figures", str(tmp_path / name)])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"can't be written: {tmp_path / 'taken'} is a file; name a folder.\n")


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match=r"--figures .*taken can't be written"):
        write_figures(tmp_path / "taken", {}, {})
