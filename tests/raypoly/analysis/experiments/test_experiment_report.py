"""Table, figure and numbers are what the runs' files say, at any time, and a page takes them between its markers."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from raypoly.analysis.experiments import experiment_command
from raypoly.analysis.experiments.experiment_command import run_experiment
from raypoly.analysis.experiments.experiment_config import load_experiment
from raypoly.analysis.experiments.planned_runs import plan_runs, take_results
from raypoly.analysis.experiments.run_queue import TrainingExit, at_work, most_at_once
from raypoly.analysis.reports.pages import fill_place, place_marker
from raypoly.core.errors import PausedTooLong, RaypolyError, StorageError, UsageError
from raypoly.run.store.catalogue import evaluation_key
from raypoly.run.store.rollout_files import encode_evaluation
from tests.raypoly.analysis.experiments.made_experiments import ARMS, experiment, finish, runs_of
from tests.support.finished_run import write_summary
from tests.support.scored_run import as_scored, evaluation_table

MARKER, OTHER = place_marker("experiment", "mine"), place_marker("experiment", "other")
PAGE = f"# Mine\n\n{MARKER}\nold words\n<!-- end -->\n\nMore.\n{OTHER}\nkept\n<!-- end -->\n"


def report(folder: Path, *given: str, page: Path | None = None) -> str:
    said: list[str] = []
    run_experiment(str(folder / "mine.yaml"), given, str(folder / "out"), 1, page, True, say=said.append)
    return "\n".join(said)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three of four runs are finished."""
    for run, gain in zip(runs_of(tmp_path)[:3], (0.0, 0.02, -0.04), strict=True):
        finish(run, gain)
    return tmp_path


def test_the_table_has_before_and_after_with_ranges_and_paired_differences(folder: Path) -> None:
    said = report(folder)
    lines = (folder / "out" / "table.md").read_text().splitlines()
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
        for line in reversed(lines)  # of two rows of a name the first counts
        if len(cells := line.split("|")) > 2
    }
    assert "3 of 4 runs are finished; poly_epo lacks 1" in lines[0]
    assert rows["before"][:2] == ["2", "0.250 (0.250 to 0.250)"]
    assert rows["**grpo**"][:2] == ["2", "0.530 (0.510 to 0.550)"]
    assert rows["**grpo**"][6] == "1.380 (1.360 to 1.400)"
    assert rows["**poly_epo**"][:2] == ["1 of 2", "0.570"]
    assert rows["**grpo**"][-2] == "1.60 (1.60 to 1.60)"
    assert rows["**poly_epo**"][-1] == "0.6", "12 steps of 1.6 s and six evaluations of 3 s"
    assert rows["poly_epo"][:2] == ["1", "+0.020"]
    assert "| **poly_epo** | 1 of 2 |" in said
    assert "| grpo | 1.7 -> 1.7 |" in said, "the norm of the gradient alone is known"
    assert (folder / "out" / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_the_numbers_are_kept_for_other_programs_and_the_same_runs_give_the_same_files(folder: Path) -> None:
    files = [folder / "out" / name for name in ("results.json", "table.md", "figure.png")]
    report(folder)
    first = [file.read_bytes() for file in files]
    report(folder)
    assert [file.read_bytes() for file in files] == first
    values = json.loads((folder / "out" / "results.json").read_text())
    assert [run["finished"] for run in values["runs"]] == [True, True, True, False]
    assert values["runs"][3]["step_seconds"] is None, "unknown is null"
    assert values["runs"][0]["curves"]["reward"][0] == [0, 0.2]
    (compared,) = values["comparisons"]
    assert compared["after"]["poly_epo"]["1"]["count"] == 1
    assert round(compared["difference"]["poly_epo"]["strategies"]["mean"], 9) == 0.02
    assert values["arms"]["grpo"]["overrides"][0] == "objective.name=grpo"


def test_results_hold_the_numbers_of_each_problem_and_files_without_them_are_read(folder: Path, tmp_path: Path) -> None:
    run = folder / "out" / "grpo-s0"
    table = evaluation_table(["one", "two"], as_scored)
    said = {"problem_set": "f00d", "weights": "cafe", "raypoly": "0.9"}
    for step, payload in ((0, said), (12, {})):
        (run / evaluation_key(step, "test")).write_bytes(encode_evaluation(step, "test", payload, table))
    summary = json.loads((run / "summary.json").read_text())
    for each in summary["evaluations"]:
        each["pass_at_k"] |= {"1": 5 / 8, "4": 1.0, "8": 1.0}
        each["strategies_correct"] = 2.0
    first = next(each for each in summary["evaluations"] if each["split"] == "test")
    write_summary(run, {**summary, "evaluations": [first | said, *summary["evaluations"]]})
    report(folder)
    results = folder / "out" / "results.json"
    values = json.loads(results.read_text())
    whole = values["runs"][0]
    expected = {"step": 0, "split": "test", **said, "problems": {}, "select": "first"}
    assert whole["problems_before"] | {"problems": {}} == expected
    assert whole["problems_before"]["problems"] == {
        "id": ["one", "two"],
        "samples": [8, 8],
        "correct": [5, 5],
        "strategies": [[3, 2], [3, 2]],
        "response_tokens": [24, 24],
        "truncated": [0, 0],
        "no_code": [0, 0],
        "behaviours": [None, None],
        "stratum": [None, None],
        "blocks": [],
    }
    after = {key: value for key, value in whole["problems_after"].items() if key != "problems"}
    known = {"step": 12, "split": "test", **dict.fromkeys(said), "select": "first"}
    assert after == known, "what nobody says is null"
    kept = values["runs"][1]
    assert (kept["finished"], kept["problems_before"]["problems"]) == (True, None), "it kept no samples"
    new, older = tmp_path / "new.json", tmp_path / "older.json"
    new.write_text(json.dumps(values))
    for each in values["runs"]:
        del each["problems_before"], each["problems_after"]
    older.write_text(json.dumps(values))
    experiment_of_it = load_experiment(folder / "mine.yaml")
    for file, correct in ((new, (5, 5)), (older, None)):
        taken, _ = take_results(plan_runs(experiment_of_it, tmp_path / "there", []), [file], print)
        found = taken[0].result.problems_after
        assert taken[0].result.after["1"] == whole["after"]["1"]
        assert (found.problems.correct if found and found.problems else None) == correct


def test_damaged_and_missing_runs_are_said_and_left_out(folder: Path) -> None:
    (folder / "out" / "grpo-s0" / "summary.json").write_text("{half")
    said = report(folder)
    assert "Note: grpo-s0 is left out: " in said
    assert "summary.json is damaged" in said
    assert "2 of 4 runs are finished" in said


def test_an_experiment_that_has_only_begun_says_so(tmp_path: Path) -> None:
    experiment(tmp_path)
    with pytest.raises(UsageError, match="nothing to report on"):
        report(tmp_path)
    (tmp_path / "out").mkdir()
    assert "*No run is finished yet.*" in report(tmp_path)


def test_a_page_takes_table_and_figure_and_nothing_else_changes(folder: Path) -> None:
    page = folder / "results.md"
    page.write_text(PAGE)
    report(folder, page=page)
    text = page.read_text()
    assert text.startswith("# Mine\n\n<!-- experiment: mine -->\n*Written by")
    assert text.endswith(f"<!-- end -->\n\nMore.\n{OTHER}\nkept\n<!-- end -->\n")
    assert "old words" not in text
    assert "](mine.png)" in text
    assert (folder / "mine.png").read_bytes() == (folder / "out" / "figure.png").read_bytes()
    report(folder, page=page)
    assert page.read_text() == text


def test_a_page_without_a_place_is_refused_before_anything_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = folder / "results.md"
    with pytest.raises(UsageError, match="can't be read"):
        report(folder, page=page)
    page.write_text("# Mine\n")
    with pytest.raises(UsageError, match="has no place for the experiment: write the lines <!-- experiment: mine -->"):
        report(folder, page=page)
    with pytest.raises(UsageError, match="no place"):
        fill_place(f"{MARKER}\nno end\n", "experiment", "mine", "", "page.md")
    page.write_text(PAGE)
    monkeypatch.setattr(os, "access", lambda *asked: False)
    with pytest.raises(UsageError, match=r"--into .*results\.md can't be written: .* is not yours to write"):
        report(folder, page=page)


def test_a_report_that_cannot_be_written_is_one_sentence(folder: Path) -> None:
    (folder / "out" / "figure.png").mkdir()
    with pytest.raises(StorageError, match=r"out/figure\.png can't be written \(Is a directory\): mend that and run"):
        report(folder)
    assert not list((folder / "out").glob(".*"))


def test_a_folder_is_held_by_one_experiment_and_times_of_a_shared_machine_are_called_that(folder: Path) -> None:
    for at_once in (3, 1):
        with (
            at_work(folder / "out", at_once),
            pytest.raises(UsageError, match="Another experiment is at work in"),
            at_work(folder / "out", 5),
        ):
            pass
    assert most_at_once(folder / "out") == 3
    assert "Up to 3 runs went on at once" in report(folder)


def test_a_finished_experiment_is_only_told_and_a_place_that_is_none_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYPOLY_RUNS", str(folder / "runs"))
    file = folder / "mine.yaml"
    finish(plan_runs(experiment(folder, ARMS), folder / "runs" / "experiment-mine", [])[0])
    one = experiment(folder, "arms: {grpo: {objective.name: grpo, steps: 12, evaluate.every: 4}}")
    assert one.seeds == (0,)
    said: list[str] = []
    run_experiment(str(file), [], None, 1, None, False, say=said.append)
    assert said[:2] == [
        str(folder / "runs" / "experiment-mine"),
        f"1 run, 1 of them finished already; what each says is in {folder}/runs/experiment-mine/ARM-sSEED.log",
    ]
    with pytest.raises(UsageError, match="need a folder of this machine"):
        run_experiment(str(file), [], "s3://bucket/x", 1, None, False, say=said.append)
    monkeypatch.setenv("RAYPOLY_RUNS", "s3://bucket/runs/")
    with pytest.raises(UsageError, match=r"^RAYPOLY_RUNS=s3://bucket/runs/ can't hold .*: give --out FOLDER\.$"):
        run_experiment(str(file), [], None, 1, None, False, say=said.append)


def test_the_exit_code_tells_a_failure_from_a_pause(tmp_path: Path) -> None:
    a, b, c, d = runs_of(tmp_path)
    done, failed = TrainingExit(a, "finished", 1.0, ""), TrainingExit(b, "failed", 1.0, "")
    paused, stopped = TrainingExit(c, "paused", 1.0, ""), TrainingExit(d, "stopped", 1.0, "")
    experiment_command.raise_outcome([done])
    with pytest.raises(PausedTooLong, match=r"^grpo-s1 paused for a judge that stayed away\. The same command"):
        experiment_command.raise_outcome([done, paused])
    with pytest.raises(RaypolyError, match=r"^poly_epo-s0 failed; poly_epo-s1 stopped early; grpo-s1 paused") as told:
        experiment_command.raise_outcome([done, failed, paused, stopped])
    assert told.value.exit_code == 1


def test_a_page_has_the_numbers_beside_it_and_another_folder_takes_them(folder: Path, tmp_path: Path) -> None:
    page = folder / "results.md"
    page.write_text(PAGE)
    report(folder, page=page)
    numbers = folder / "mine.json"
    assert numbers.read_bytes() == (folder / "out" / "results.json").read_bytes()
    said: list[str] = []
    there = tmp_path / "there"
    there.mkdir()
    run_experiment(str(folder / "mine.yaml"), [], str(there), 1, page, True, (numbers,), said.append)
    here = (folder / "out" / "table.md").read_text().splitlines()
    lines = (there / "table.md").read_text().splitlines()
    assert "3 of 4 runs are finished; poly_epo lacks 1. 3 of them were trained elsewhere, with times of" in lines[0]
    assert lines[1:] == here[1:]
    assert (there / "figure.png").read_bytes() == (folder / "out" / "figure.png").read_bytes()
    finish(plan_runs(experiment(folder), there, [])[3])
    run_experiment(str(folder / "mine.yaml"), [], str(there), 1, page, True, (numbers,), said.append)
    assert "4 of 4 runs are finished. 3 of them were trained elsewhere" in (there / "table.md").read_text()
    assert json.loads(numbers.read_text())["runs"][3]["finished"], "the page's numbers are those of its table"


def test_what_is_no_run_of_the_experiment_is_not_taken(folder: Path, tmp_path: Path) -> None:
    report(folder)
    (tmp_path / "other").mkdir()
    results = folder / "out" / "results.json"
    said: list[str] = []
    for given in (["train.lr=0.5"], ["evaluate.samples=8"]):
        run_experiment(
            str(folder / "mine.yaml"), given, str(tmp_path / "other"), 1, None, True, (results,), said.append
        )
        assert "Note: grpo-s0 of --also is no run of this experiment, and is left out." in said
        assert "*No run is finished yet.*" in (tmp_path / "other" / "table.md").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "can't be read (No such file or directory): give an experiment's results.json"),
        ("{half", "is not the results.json of an experiment: Expecting property name"),
        ("[]", "is not the results.json of an experiment: the file: Input should be"),
        ('{"runs": []}', "is not the results.json of an experiment: config: Field required"),
        (
            '{"config": null, "at_once": 1, "runs": [{"arm": "grpo"}]}',
            "is not the results.json of an experiment: runs.0.seed: Field required",
        ),
    ],
)
def test_a_file_that_is_none_is_refused(folder: Path, text: str | None, words: str) -> None:
    file = folder / "given.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=re.escape(words)):
        run_experiment(str(folder / "mine.yaml"), [], str(folder / "out"), 1, None, True, (file,), print)
