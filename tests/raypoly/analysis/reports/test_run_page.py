"""The report opens offline, shows what the run did, and runs nothing that a model wrote."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from raypoly import Run
from raypoly.analysis.metrics.pass_at_k import block_ks, ks
from raypoly.analysis.reports.charts import draw_run, run_panels, time_panels
from raypoly.analysis.reports.run_page import other_arm_overrides, run_tables, show_results, write_report
from raypoly.analysis.reports.run_table import (
    judge_table,
    later_table,
    measure_table,
    results_table,
    shown_ks,
    time_table,
)
from raypoly.core.errors import CorruptData
from raypoly.run.store.catalogue import evaluation_key
from raypoly.run.store.sealed_files import seal
from tests.support.finished_run import HOSTILE, STEPS, summary, write_finished_run
from tests.support.long_run import as_planned, write_long_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(write_finished_run(tmp_path_factory.mktemp("runs") / "short"))


@pytest.fixture(scope="module")
def page(run: Run) -> str:
    return Path(write_report(run)).read_text()


class Tags(HTMLParser):
    """Every tag with its attributes, and whether all that was opened was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("img", "meta", "br", "input", "option"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "option":
            assert self.open.pop() == tag


def test_the_report_is_one_file_that_needs_no_network(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not {tag for tag, _ in tags.seen} & {"link", "iframe", "object"}
    scripts = [attributes.get("type") for tag, attributes in tags.seen if tag == "script"]
    assert scripts == ["application/json", "application/json", None], "numbers, rollouts, and the page's own"
    assert not {name for _, attributes in tags.seen for name in attributes} & {"src", "href"}
    library = "/*! https://github.com/leeoniya/uPlot (v1.6.32) */"
    assert "://" not in page.replace(library, "")
    assert "The MIT License (MIT)\n\nCopyright (c) 2022 Leon Sorokin" in page, "which it asks for in every copy"


def test_what_a_model_wrote_is_shown_and_not_run(page: str) -> None:
    assert HOSTILE not in page
    assert r"\u003c/pre\u003e\u003cscript\u003e" in page
    assert "the judge &lt;refuses&gt; connections" in page


def test_the_report_shows_curves_table_samples_pauses_times_and_config(run: Run, page: str) -> None:
    for word in (
        "pass@64",
        "Before and after",
        "sum-to-n",
        "builtin",
        "Pauses",
        "61 s",
        "generate",
        "prompts_per_step",
    ):
        assert word in page
    assert (run.directory / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_what_the_objective_measured_is_a_table_and_a_run_without_has_none(run: Run, page: str, tmp_path: Path) -> None:
    assert measure_table(run.rows).rows == []
    path = write_finished_run(tmp_path / "measured", "upskill")
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for step, line in enumerate(lines):
        line |= {"objective/mi_reward": 0.1 * step} if step else {}
        line |= {"objective/never": None}
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    measured = Run(path)
    assert measure_table(measured.rows).rows == [
        ("mi_reward", "0.300", "0.900", "0.100", "1.100"),
        ("never", "-", "-", "-", "-"),
    ]
    assert "<h2>What the objective measured</h2>" in Path(write_report(measured)).read_text()
    assert "What the objective measured" not in page
    assert measured.metrics().column("objective/mi_reward").to_pylist()[:2] == [None, 0.1]


USE = {
    "groups": 20, "free": 2, "cache_hits": 6, "answers": 18, "calls": 19, "retries": 1, "failovers": 3,
    "prompt_tokens": 1000, "cached_tokens": 600, "cached_of": 1000, "completion_tokens": 100, "known_usd": 0.5,
    "cost_usd": 0.5,
}  # fmt: skip


def judged(folder: Path, *overrides: str, **row: object) -> Run:
    """A run whose judge was asked in every step, four steps before its end."""
    path = write_finished_run(folder, "poly_epo", True, "judge.name=openai", *overrides)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for i, line in enumerate(lines):
        line |= {"judge_step": USE, "labelled_by": {"openai:one": 17, "openai:two": 3}, "strategies_structural": 1.2}
        line |= {"judge_agreement": 0.9 - 0.01 * i if i % 5 == 0 else None} | row
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run(path)


def test_the_report_tells_what_the_judge_was_asked_and_what_it_costs_to_the_end(tmp_path: Path) -> None:
    run = judged(tmp_path / "judged")
    rows = dict(judge_table(run).rows)
    assert rows["training groups labelled by openai:two"] == "36"
    assert rows["answers from the second server"] == "36"
    assert rows["prompt tokens that the server had cached"] == "60%"
    assert rows["answers found in the cache"] == "25%"
    assert rows["money so far"] == "$6.0"
    assert rows["money a step, newest steps"] == "$0.50"
    assert rows[AGREEMENT] == "0.900 at step 0, 0.800 at step 10"
    assert "<h2>Judge</h2>" in Path(write_report(run)).read_text()


AGREEMENT = "agreement with gold groups, 3 looks (adjusted Rand index)"
UNSAID = {name: value for name, value in USE.items() if name != "cached_of"} | {"cached_tokens": None}


@pytest.mark.parametrize(
    ("use", "name", "shown", "missing"),
    [
        ({**USE, "unpriced": 4, "cost_usd": None}, "money so far", "unknown: give judge.price_input", "money a step"),
        (UNSAID, "prompt tokens that the server had cached", "-", "unknown"),
        (None, AGREEMENT, "0.900 at step 0, 0.800 at step 10", "money so far"),
    ],
)
def test_what_is_not_known_of_a_judge_is_no_number(
    tmp_path: Path, use: dict[str, object] | None, name: str, shown: str, missing: str
) -> None:
    rows = dict(judge_table(judged(tmp_path / "run", judge_step=use)).rows)
    assert rows[name].startswith(shown)
    assert not any(each.startswith(missing) for each in rows)


def test_an_offline_judge_has_no_section(run: Run, page: str) -> None:
    assert judge_table(run).rows == []
    assert "<h2>Judge</h2>" not in page


def test_diversity_stands_beside_a_count_by_structure_unless_the_judge_is_that(run: Run, tmp_path: Path) -> None:
    def labels(of: Run) -> set[str]:
        axes = Figure().subplots()
        run_panels(of)[1].draw(axes)
        return set(axes.get_legend_handles_labels()[1])

    asked = labels(judged(tmp_path / "two"))
    assert {"all, judged (N=8)", "all, by structure (N=8)", "agreement (right)"} <= asked
    embedded = labels(judged(tmp_path / "one", "judge.name=structural", judge_agreement=None))
    assert "all, judged (N=8)" in embedded
    assert "correct, by execution (N=8)" in embedded
    assert not {"all, by structure (N=8)", "agreement (right)"} & embedded


def test_the_report_tells_what_the_steps_waited_for(run: Run, page: str) -> None:
    shown = {name: values for name, *values in time_table(run.summary["stage_seconds"], run.rows).rows}
    assert list(shown) == ["generate", "score", "judge", "learn", "sync", "idle", "total"]
    assert shown["generate"] == ["40.0", f"{STEPS * 1.0:.1f}", "62.5%"]
    assert shown["judge"] == ["-", f"{STEPS * 0.05:.1f}", "3.1%"]
    assert "its labels 0.20 s after the end of generation; for 0.08 s of that" in page
    assert time_table({}, []).rows == time_panels([]) == []


def test_a_run_that_has_only_begun_says_so_and_one_without_a_step_still_has_a_figure(tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "begun", finished=False)
    assert "Not evaluated on the test split yet" in Path(write_report(Run(folder))).read_text()
    (folder / "metrics.jsonl").unlink()
    assert draw_run(Run(folder)).startswith(b"\x89PNG")


def printed(of: dict[str, Any], width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(results_table(of))
    return out.getvalue()


def test_the_end_table_compares_before_and_after_on_test() -> None:
    shown = printed(summary("poly_epo"))
    assert re.search(r"pass@1 .*0\.250 .*0\.550 .*\+0\.300", shown)
    assert re.search(r"by execution .*1\.100 .*1\.400 .*\+0\.300", shown)
    assert re.findall(r"pass@(\d+)", shown) == ["1", "4", "8", "16", "64"]
    untrained = {**summary("grpo"), "evaluations": [e for e in summary("grpo")["evaluations"] if e["step"] == 0]}
    assert "0.000" not in printed(untrained), "what was not measured is never zero"
    assert " - " in printed(untrained)


@pytest.mark.parametrize(
    ("measured", "shown"),
    [
        (ks(1), "1"),
        (ks(2), "1 2"),
        (ks(32), "1 4 8 16 32"),
        (ks(100), "1 4 8 16 64"),
        (sorted([*ks(512), 10, 100]), "1 4 8 10 16 64 100 128 256 512"),
        (block_ks(24, 3), "1 3 6 12 24"),
    ],
)
def test_tables_leave_out_what_is_between_and_never_the_largest_k(measured: Sequence[int], shown: str) -> None:
    assert " ".join(shown_ks([dict.fromkeys(map(str, measured), 0.5)])) == shown


def test_each_scaffold_that_was_measured_again_has_a_row_of_its_name(tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "again")
    measured = {"pass_at_k": {"1": 0.5}, "strategies_correct": 1.25}
    other = {"scaffold": "plan_and_solve", "pass_at_k": {"1": 0.75}, "strategies_correct": 1.5}
    several = {"step": 12, "split": "test", "samples": 8, "problems": 3, "scaffold": "direct", **measured}
    (folder / "evaluations").mkdir()
    (folder / "evaluations" / "a.json").write_bytes(seal({**several, "scaffolds": [other]}))
    table = later_table({"again": Run(folder)})
    assert table.head[:7] == ("file", "scaffold", "step", "split", "samples", "problems", "pass@1")
    assert table.rows == [
        ("a", "direct", "12", "test", "8", "3", "0.500", "1.250"),
        ("a", "plan_and_solve", "12", "test", "8", "3", "0.750", "1.500"),
    ]


def test_a_damaged_row_of_metrics_is_one_sentence(tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "torn")
    (folder / "metrics.jsonl").write_bytes(b"\0\0\n")
    with pytest.raises(CorruptData, match=r"metrics\.jsonl is damaged: .* The run's next start writes it again\."):
        Run(folder).rows  # noqa: B018


def test_the_end_table_fits_a_terminal_of_80_columns_without_a_break() -> None:
    late = summary("poly_epo")
    for entry in late["evaluations"]:
        entry["step"] *= 500
    lines = printed(late, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert re.search(r"distinct correct strategies in 8, by the judge .*1\.300", "\n".join(lines))
    assert "step 6000" in "".join(lines)
    assert len(lines) == 5 + len(results_table(late).rows), "no row takes two lines"


def test_the_closing_words_name_table_figure_and_report(run: Run) -> None:
    out = io.StringIO()
    show_results(run, Console(file=out, width=120))
    assert "pass@64" in out.getvalue()
    assert f"figure: {run.directory}/figure.png" in out.getvalue()
    assert f"report: {run.directory}/report.html" in out.getvalue()


def test_a_damaged_evaluation_leaves_out_the_scaffolds_tables_alone(tmp_path: Path) -> None:
    folder = as_planned(write_long_run(tmp_path / "planned"))
    out = io.StringIO()
    show_results(Run(folder), Console(file=out, width=200))
    assert "surface diversity" in out.getvalue()
    (folder / evaluation_key(4, "test")).write_bytes(b"PAR1")
    out = io.StringIO()
    show_results(Run(folder), Console(file=out, width=200))
    assert "surface diversity" not in out.getvalue()
    assert "pass@8" in out.getvalue()
    assert (
        "The rollouts of the last evaluation (test, step 4) can&#39;t be read." in (folder / "report.html").read_text()
    )


def test_a_paper_gets_the_pages_panels_and_tables(tmp_path: Path) -> None:
    run = Run(as_planned(write_long_run(tmp_path / "planned")))
    assert set(run_tables(run)) == {"results", "scaffolds"}
    measured = judged(tmp_path / "judged")
    show_results(measured, Console(quiet=True), tmp_path / "figures")
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {f"{table}.csv" for table in ("results", "times", "judge")} <= names
    assert {"what_the_mean_step_waited_for.pdf", "what_each_step_waited_for.svg"} <= names
    assert "scaffolds.csv" not in names


def test_the_other_arm_keeps_all_but_objective_and_folder() -> None:
    kept = ["train.seed=1", "run.on_pause=a b"]
    words = other_arm_overrides("poly_epo", [*kept, "objective.set_size=3", "run.dir=/x", "run.push_to_hub=me/mine"])
    assert words == [*kept, "objective.name=grpo"]
    assert other_arm_overrides("grpo", ["objective.name=grpo"]) == ["objective.name=poly_epo"]
