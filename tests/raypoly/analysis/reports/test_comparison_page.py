"""Several runs are compared as an experiment's are, or a sentence says why they are not."""

from __future__ import annotations

import io
import re
from html import unescape
from pathlib import Path

import pytest
from rich.console import Console

import raypoly
from raypoly import Run
from raypoly.analysis.experiments.arm_comparison import compare_arms, measure_differences
from raypoly.analysis.experiments.compared_runs import compare_runs, why_not_compared
from raypoly.analysis.experiments.run_result import CommandResult
from raypoly.analysis.reports.comparison_page import plain_sentences, show_comparison
from raypoly.analysis.reports.run_page import write_report
from raypoly.core.errors import UsageError
from raypoly.run.run_files import EVALUATIONS
from raypoly.run.store import open_store
from raypoly.run.store.sealed_files import seal
from tests.support.finished_run import write_finished_run
from tests.support.long_run import as_planned, write_long_run


def said_of(*folders: Path) -> str:
    """The sentences alone, which both the terminal and the page show: figures take most of a page's time."""
    return "\n".join(raypoly.compare([Run(folder) for folder in folders]).sentences)


def compared(*folders: Path) -> tuple[str, str]:
    """What the command prints, and the page."""
    out, page = io.StringIO(), folders[0].parent / "comparison.html"
    show_comparison([Run(folder) for folder in folders], page, Console(file=out, width=120))
    return out.getvalue(), page.read_text()


def test_arms_of_several_seeds_have_the_differences_of_an_experiment(tmp_path: Path) -> None:
    folders = [
        write_long_run(tmp_path / f"{name}-s{seed}", name, f"train.seed={seed}", gain=gain)
        for name, gain in (("grpo", 0.0), ("poly_epo", 0.7))
        for seed in (0, 1)
    ]
    said, page = compared(*folders)
    runs = compare_runs([Run(folder) for folder in folders])
    assert [(run.name, run.result.arm, run.result.seed) for run in runs] == [
        ("grpo-s0", "grpo", 0),
        ("grpo-s1", "grpo", 1),
        ("poly_epo-s0", "poly_epo", 0),
        ("poly_epo-s1", "poly_epo", 1),
    ]
    (comparison,) = compare_arms([run.result for run in runs])
    measured = measure_differences(comparison)
    pass_1 = next(each for each in measured if (each.arm, each.reference, each.measure) == ("poly_epo", "grpo", "1"))
    assert f"{pass_1.paired.mean:+.3f}</td>" in page
    assert f"In pass@1, poly_epo ends {pass_1.paired.mean:.3f} above grpo; the 95 % interval is [+" in said
    assert "This holds for other seeds and other problems." in said
    for shown in ('"title":"reward"', '"arms":["grpo","poly_epo"]', "objective.name", "train.seed"):
        assert shown in page
    for sentence in plain_sentences(measured):
        assert sentence in said
    assert why_not_compared(runs, [comparison]) == []


def test_runs_that_began_otherwise_are_named_and_have_no_difference(tmp_path: Path) -> None:
    theirs = write_long_run(tmp_path / "theirs", "poly_epo", weights="c0ffee")
    said, page = compared(write_long_run(tmp_path / "mine"), theirs)
    assert "theirs and mine have no difference: they began with other weights." in said
    assert "theirs and mine have no difference: they began with other weights." in page
    assert "Difference from where each run began" in page
    assert "Difference from grpo" not in page
    assert "ends" not in said


def test_a_seed_that_only_one_arm_has_a_length_of_its_own_and_an_unfinished_run_are_said(tmp_path: Path) -> None:
    first = write_long_run(tmp_path / "first")
    seed = write_long_run(tmp_path / "seed", "poly_epo", "train.seed=3")
    longer = write_long_run(tmp_path / "longer", "poly_epo", steps=6)
    begun = write_finished_run(tmp_path / "begun", "poly_epo", False)  # all steps, and no evaluation
    said = said_of(first, seed, longer, begun)
    for sentence in (
        "seed has no difference: no finished run of first has its seed 3.",
        "begun has done 12 of 12 steps. Differences are of finished runs alone.",
        "Runs of 4 and 6 and 12 steps are compared apart",
    ):
        assert sentence in said
    assert "ends" not in said


def test_seeds_of_one_arm_and_one_run_trained_twice_are_told_apart(tmp_path: Path) -> None:
    seeds = [write_long_run(tmp_path / f"s{seed}", "grpo", f"train.seed={seed}") for seed in (0, 1)]
    assert "The runs are seeds of one arm." in said_of(*seeds)
    again = write_long_run(tmp_path / "again")
    assert "In pass@1, again ends 0.000 above s0" in said_of(seeds[0], again)
    elsewhere = write_long_run(tmp_path / "deep" / "s0", weights="c0ffee")
    said = said_of(seeds[0], elsewhere)
    assert f"{elsewhere} and {seeds[0]} have no difference: they began with other weights." in said


def test_only_keys_that_affect_results_are_in_the_first_table_of_keys(tmp_path: Path) -> None:
    a = write_long_run(tmp_path / "a", "grpo", "scorer.workers=1")
    b = write_long_run(tmp_path / "b", "grpo", "scorer.workers=2", "train.lr=0.5")
    _, page = compared(a, b)
    keys = page[page.index("<h2>Keys that differ") : page.index("<h2>Rollouts")]
    first, folded = keys.split("<details>")
    assert re.findall(r'<th scope="row">([^<]+)', first) == ["train.lr"]
    assert re.findall(r'<th scope="row">([^<]+)', folded) == ["scorer.workers"]


def test_a_run_named_twice_and_a_place_that_takes_no_file_are_refused(tmp_path: Path) -> None:
    a, b = write_long_run(tmp_path / "a"), write_long_run(tmp_path / "b", "poly_epo")
    (tmp_path / "link").symlink_to(a)
    for again in (a, tmp_path / "b" / ".." / "a", tmp_path / "link"):
        with pytest.raises(UsageError, match="named twice"):
            show_comparison([Run(a), Run(again)], tmp_path / "page.html", Console(quiet=True))
    with pytest.raises(UsageError, match="can't be written"):
        show_comparison([Run(a), Run(b)], tmp_path / "no" / "page.html", Console(quiet=True))


def test_what_evaluate_measured_later_is_a_table(tmp_path: Path) -> None:
    a, b = write_long_run(tmp_path / "a"), write_long_run(tmp_path / "b", "poly_epo")
    assert "Measured again" not in Path(write_report(Run(a))).read_text()
    evaluation = {"step": 4, "split": "train", "samples": 256, "problems": 9, "pass_at_k": {"1": 0.123, "64": 0.987}}
    (a / EVALUATIONS).mkdir()
    (a / EVALUATIONS / "train-step-000004-20261121T100000.json").write_bytes(seal(evaluation))
    (a / EVALUATIONS / "train-step-000004-20261122T100000.json").write_text("{half")
    for page in (Path(write_report(Run(a))).read_text(), compared(a, b)[1]):
        again = page[page.index("<h2>Measured again by raypoly evaluate") :].partition("</table>")[0]
        cells = re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", again)
        at = cells.index("train-step-000004-20261121T100000")
        assert cells[at + 1 : at + 6] == ["4", "train", "256", "9", "0.123"]
        damaged = cells.index("train-step-000004-20261122T100000")
        assert set(cells[damaged + 1 : damaged + 11]) == {"-"}


RUNNING = seal({"steps": 4, "state": "running", "evaluations": []})


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("summary.json", RUNNING, "has done 4 of 4 steps. Differences are of finished runs alone."),
        ("summary.json", b"{half\n", "can't be read: {} is damaged"),
        ("metrics.jsonl", b"{half\n", "can't be read: {} is damaged"),
    ],
)
def test_a_run_that_goes_on_or_cannot_be_read_is_said_and_the_others_are_compared(
    tmp_path: Path, file: str, content: bytes, why: str
) -> None:
    a, b, c = (write_long_run(tmp_path / name, "grpo", f"train.lr=0.{i}1") for i, name in enumerate("abc"))
    (c / file).write_bytes(content)
    said, page = compared(a, b, c)
    assert "In pass@1, b ends" in said
    assert f"c {why.format(c / file)}" in said
    assert ("<td>0</td><td>-</td>" in page.replace(' class="n"', "")) == ("damaged" in why)
    assert ('{"name":"c"' in page) == ("damaged" not in why), "a chart has lines of what can be read"
    assert [name for name in "abc" if f"{name}: All " in page] == ["a", "b"]


def test_a_notebook_and_a_paper_get_the_same_comparison_with_costs_and_later_measures(tmp_path: Path) -> None:
    runs = [Run(write_long_run(tmp_path / name, name, gain=gain)) for name, gain in (("grpo", 0.0), ("poly_epo", 0.7))]
    as_planned(runs[1].directory)
    (runs[0].directory / EVALUATIONS).mkdir()
    later = runs[0].directory / EVALUATIONS / "test-step-000004-20261121T100000.json"
    later.write_bytes(seal({"step": 4, "split": "test"}))
    shown = raypoly.compare([run.directory for run in runs])
    html = shown._repr_html_()
    assert all(sentence in unescape(html) for sentence in shown.sentences)
    assert "<script" not in html
    out, figures = io.StringIO(), tmp_path / "figures"
    show_comparison(list(shown.readable.values()), tmp_path / "page.html", Console(file=out, width=120), figures)
    names = {path.name for path in figures.iterdir()}
    assert {"results.csv", "results.tex", "difference_from_grpo.csv", "difference_since_start.tex"} <= names
    assert {"pass_k_by_k_on_test_before_and_after.pdf", "reward_of_training_rollouts_over_the_steps.svg"} <= names
    assert f"{len(names)} files of figures and tables:" in out.getvalue()
    assert "poly_epo,tuple,400," in (figures / "scaffolds.csv").read_text()
    assert "grpo,test-step-000004-20261121T100000,4,test" in (figures / "later.csv").read_text()


def test_a_notebook_names_runs_in_any_way_and_one_seed_says_nothing_of_others(tmp_path: Path) -> None:
    folders = [write_long_run(tmp_path / name, name, gain=0.3) for name in ("grpo", "poly_epo")]
    said = raypoly.compare([Run(folder) for folder in folders]).sentences
    assert "One seed does not show what another one would give." in said[-1]
    assert "where no difference is shown there may still be one" in said[-1]
    assert raypoly.compare(map(Run, folders)).sentences == raypoly.compare(map(str, folders)).sentences == said
    assert raypoly.compare(folders[:1]).sentences == [], "one run is no seeds of an arm"
    with pytest.raises(UsageError, match="Name a run, or several to compare"):
        raypoly.compare([])


def stage(folder: Path, name: str, seed: int, *overrides: str, after: str = "", gain: float = 0.3) -> Path:
    """A run of an experiment with stages."""
    begins = [f"model.path={folder / f'{after}-s{seed}' / 'model'}"] if after else []
    weights = f"{4:064x}" if after else "beef"
    keys = (f"train.seed={seed}", *begins, *overrides)
    return write_long_run(folder / f"{name}-s{seed}", "grpo", *keys, weights=weights, gain=gain)


def test_stages_are_compared_without_what_they_began_with(tmp_path: Path) -> None:
    folders = [
        stage(tmp_path, name, seed, f"train.lr={lr}", after="sft")
        for name, lr in (("joint", "1.0e-5"), ("slow", "1.0e-6"))
        for seed in (0, 1)
    ]
    runs = compare_runs([Run(folder) for folder in folders])
    assert [run.result.arm for run in runs] == ["joint", "joint", "slow", "slow"]
    (comparison,) = compare_arms([run.result for run in runs])
    assert len(comparison.pairs(comparison.arms[1])) == 2
    assert why_not_compared(runs, [comparison]) == []


def test_what_is_no_training_is_named_and_has_no_numbers(tmp_path: Path) -> None:
    gate, audit, one = (stage(tmp_path, name, 0) for name in ("gate", "audit", "one"))
    for folder, command in ((gate, "train-gate"), (audit, "audit-plans")):
        CommandResult(command, "Found", {"auc": 0.9}).write(open_store(folder))
    said = said_of(one, gate, audit)
    assert "gate-s0 was made by `raypoly train-gate`: it has no numbers on test." in said
    assert "audit-s0 was made by `raypoly audit-plans`: it has no numbers on test." in said
    assert "ends" not in said
    assert "train-gate" in said_of(gate, audit)


def test_a_parameter_of_one_run_alone_is_a_key_that_differs(tmp_path: Path) -> None:
    own = ("scaffold.name=plan_search", "scaffold.observations=2")
    one, other = stage(tmp_path, "planned", 0, *own), stage(tmp_path, "direct", 0)
    for folders in ((one, other), (other, one)):
        _, page = compared(*folders)
        cells = ["<td>2</td>", "<td>-</td>"]
        row = re.search(r"scaffold\.observations.*?</tr>", page, re.DOTALL)
        assert row is not None
        assert re.findall(r"<td>.*?</td>", row[0]) == (cells if folders[0] == one else cells[::-1])
