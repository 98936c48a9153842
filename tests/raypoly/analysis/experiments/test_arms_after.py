"""Arms after others: none begins without what it needs, and a result that does not pass ends its chain."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from raypoly.analysis.experiments.arm_comparison import BEFORE, compare_arms, measure_differences
from raypoly.analysis.experiments.experiment_command import raise_outcome, refusals
from raypoly.analysis.experiments.experiment_forecast import forecast_lines
from raypoly.analysis.experiments.planned_runs import PlannedRun, check_runs, plan_runs, take_results
from raypoly.analysis.reports.comparison_tables import comparison_text
from raypoly.analysis.reports.experiment_report import RESULTS, TABLE, write_experiment_figures, write_experiment_report
from raypoly.core.errors import RaypolyError, UsageError
from tests.raypoly.analysis.experiments.made_experiments import (
    PASSES,
    REFUSED,
    by_problem,
    drawn,
    experiment,
    finish,
    numbers,
    outcomes,
    runs_of,
    scripted,
    that_finishes,
)

CHAIN = """
seeds: [0, 1]
arms:
  joint: {after: audit, objective.name: poly_epo, steps: 12, evaluate.every: 4}
  audit: {after: sft, command: look-at-plans, options: {problems: 64}, steps: 0, objective.name: grpo}
  base: {command: evaluate}
  sft: {objective.name: grpo, steps: 12, evaluate.every: 4}
"""
"""The arms stand in another order than they have to run in."""


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, PlannedRun]:
    (tmp_path / "out").mkdir()
    return {run.name: run for run in runs_of(tmp_path, CHAIN)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("arms: {a: {after: b}, b: {after: a}}", "after each other"),
        ("arms: {a: {after: a}}", "the arms a are after each other"),
        ("arms: {a: {after: sfd}, sft: {}}", "arm a is after sfd, which is none of a, sft"),
        (
            "seeds: [0, 1]\narms: {a: {after: b}, b: {seeds: [1]}}",
            "arm a has seed 0, and b, which it is after, has not",
        ),
        ("arms: {a: {command: evaluate, steps: 3}}", "command: evaluate has no steps"),
        ("arms: {a: {command: Look}}", "arms.a.command"),
        ("arms: {a: {options: {recall: 0.9}}}", "options are of other commands than train"),
        ("arms: {a: {recall: 0.9}}", "write section.key: value"),
        ("arms: {a: {scaffold.rows: $b/rows}, b: {}}", "scaffold.rows names the folder of b: name that arm in after"),
        ("arms: {a: {scaffold.x: [$b, $c], after: b}, b: {}, c: {}}", "names the folder of c"),
    ],
)
def test_a_mistake_in_a_chain_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        experiment(tmp_path, text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 2


def test_an_arm_begins_with_the_weights_of_the_same_seed_and_is_planned_without_them(
    runs: dict[str, PlannedRun], tmp_path: Path
) -> None:
    order = ["joint-s0", "audit-s0", "base-s0", "sft-s0", "joint-s1", "audit-s1", "base-s1", "sft-s1"]
    assert list(runs) == order
    sft = str(tmp_path / "out/sft-s1/model")
    assert runs["audit-s1"].config.model.path == sft
    assert runs["joint-s1"].config.model.path == sft, "an audit changes no weights, and keeps none"
    assert runs["joint-s1"].checked_config.model.path is None
    assert (runs["base-s0"].steps, runs["base-s0"].config.evaluate.every) == (0, 1)
    assert runs["audit-s1"].command[3:5] == ["look-at-plans", "--problems=64"]
    check_runs([run for run in runs.values() if run.arm != "audit"], 1)
    with pytest.raises(UsageError, match=r"^Arm audit: No such command 'look-at-plans'"):
        check_runs(list(runs.values()), 1)


def test_what_a_chain_costs_is_known_before_the_weights_are_there(tmp_path: Path) -> None:
    given = ["model.path=Qwen/Qwen3-0.6B", "model.dtype=bfloat16", "generator.engine=vllm"]
    text = "\n".join(forecast_lines(plan_runs(experiment(tmp_path, CHAIN), tmp_path / "out", given), "h200"))
    assert "Hours come from a pilot" in text
    rows = {words[0]: words for words in map(str.split, text.splitlines()) if words}
    assert "audit" not in rows
    assert "Runs of other commands are not counted." in text
    assert rows["in"][:3] == ["in", "all", "6"]
    assert rows["joint"][1:4] == ["2", "12", "unknown"]


def test_a_run_is_the_same_before_and_after_the_weights_are_there(runs: dict[str, PlannedRun], tmp_path: Path) -> None:
    for run in runs.values():
        finish(run)
    folder = tmp_path / "out/sft-s0/model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    again = {run.name: run for run in runs_of(tmp_path, CHAIN)}
    assert all(run.finished for run in again.values())
    for name, run in again.items():
        assert (run.config, run.start, run.keys) == (runs[name].config, runs[name].start, runs[name].keys)


def test_an_arm_that_others_began_after_gets_no_more_steps(runs: dict[str, PlannedRun], tmp_path: Path) -> None:
    longer = CHAIN.replace("grpo, steps: 12", "grpo, steps: 20")
    finish(runs["sft-s0"])
    assert not {run.name: run for run in runs_of(tmp_path, longer)}["sft-s0"].finished
    finish(runs["audit-s0"])
    with pytest.raises(
        UsageError, match=r"^Arm audit: .*audit-s0 began with sft-s0 after 12 steps, and train.steps=20"
    ):
        runs_of(tmp_path, longer)


def test_a_model_that_is_given_for_all_is_where_chains_begin(tmp_path: Path) -> None:
    text = "arms: {a: {steps: 2}, b: {after: a, steps: 2}}"
    a, b = plan_runs(experiment(tmp_path, text), tmp_path / "out", ["model.path=Qwen/Qwen3-0.6B"])
    assert a.config.model.path == b.checked_config.model.path == "Qwen/Qwen3-0.6B"
    assert b.config.model.path == str(tmp_path / "out/a-s0/model")


def needs(run: PlannedRun) -> str:
    """Lines of a script that fail unless the weights that the run begins with are there."""
    needed = [str(before.place / "summary.json") for before in run.before]
    return f"import pathlib\nassert all(pathlib.Path(each).exists() for each in {needed!r})"


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_arm_starts_before_the_one_it_is_after_is_finished(
    runs: dict[str, PlannedRun], tmp_path: Path, at_once: int
) -> None:
    found, _ = outcomes([that_finishes(run, tmp_path, needs(run)) for run in runs.values()], at_once)
    assert set(found) == set(runs)
    assert set(found.values()) == {"finished"}
    for name, run in runs.items():
        assert all(list(found).index(before.name) < list(found).index(name) for before in run.before)


def test_after_a_run_that_fails_nothing_starts_and_the_same_command_goes_on(
    runs: dict[str, PlannedRun], tmp_path: Path
) -> None:
    fails = {"sft-s0": scripted(runs["sft-s0"], "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")}
    ready = {name: that_finishes(run, tmp_path, needs(run)) for name, run in runs.items()}
    found, said = outcomes(list((ready | fails).values()))
    assert found.pop("sft-s0") == "failed"
    assert set(found) == {"base-s0", "joint-s1", "audit-s1", "base-s1", "sft-s1"}
    assert set(found.values()) == {"finished"}, "the other seed's chain goes on"
    assert [line for line in said if "not started" in line] == [
        "audit-s0: is not started, since sft-s0 is not finished",
        "joint-s0: is not started, since audit-s0 is not finished",
    ]
    again, _ = outcomes(list(ready.values()))
    assert again == {"sft-s0": "finished", "audit-s0": "finished", "joint-s0": "finished"}


def test_after_a_refusal_nothing_starts_now_or_later(runs: dict[str, PlannedRun], tmp_path: Path) -> None:
    ready = {
        name: that_finishes(run, tmp_path, needs(run), REFUSED if run.seed == 0 else PASSES)
        for name, run in runs.items()
    }
    found, said = outcomes(list(ready.values()))
    assert set(runs) - set(found) == {"joint-s0"}
    assert "joint-s0: is not started, since audit-s0 does not pass" in said
    assert outcomes(list(ready.values())) == ({}, ["joint-s0: is not started, since audit-s0 does not pass"])
    (sentence,) = refusals(ready.values())
    assert sentence == "audit-s0 does not pass: 0.01 were. Nothing after it is started: go back to sft."


def test_a_refusal_is_exit_code_1_and_stands_in_the_report(runs: dict[str, PlannedRun], tmp_path: Path) -> None:
    for run in runs.values():
        if run.name != "joint-s0":
            finish(run, found=REFUSED if run.seed == 0 else PASSES)
    with pytest.raises(RaypolyError, match=r"^audit-s0 does not pass.*go back to sft") as refused:
        raise_outcome([], refusals(runs.values()))
    assert refused.value.exit_code == 1
    out = tmp_path / "out"
    chain = experiment(tmp_path, CHAIN)
    results = write_experiment_report(chain, out, list(runs.values()), 1)
    write_experiment_figures(chain, results, tmp_path / "figures")
    assert "audit-s0,64,0.010," in (tmp_path / "figures" / "look-at-plans.csv").read_text()
    table = (out / TABLE).read_text()
    assert "| audit-s0 | 64 | 0.010 | - | go back to sft |" in table
    assert "| audit-s1 | 64 | 0.700 | 0.580 | passes |" in table
    kept = {f"{run['arm']}-s{run['seed']}": run for run in json.loads((out / RESULTS).read_text())["runs"]}
    assert [kept[name]["found"]["numbers"]["auc"] for name in ("audit-s0", "audit-s1")] == [None, 0.58]
    assert [kept[name]["found"]["go_back_to"] for name in ("audit-s0", "audit-s1")] == ["sft", None]
    assert kept["joint-s1"]["begins_with"] == "audit"
    assert "audit" not in json.loads((out / RESULTS).read_text())["comparisons"][0]["after"]


def test_a_damaged_result_is_said(runs: dict[str, PlannedRun]) -> None:
    finish(runs["audit-s0"])
    file = runs["audit-s0"].place / "result.json"
    file.write_bytes(file.read_bytes().replace(b"0.7", b"0.9"))
    with pytest.raises(UsageError, match=r"result\.json can't be read .*makes it again"):
        _ = runs["audit-s0"].found


def test_stages_are_in_one_table_and_measured_once_is_no_difference_from_a_start(
    runs: dict[str, PlannedRun], tmp_path: Path
) -> None:
    for run in runs.values():
        finish(run, gain=0.1)
    planned = list(runs.values())
    base = runs["base-s0"].result
    assert base.before == base.after
    found = write_experiment_report(experiment(tmp_path, CHAIN), tmp_path / "out", planned, 1)
    (comparison,) = compare_arms(found)
    assert [arm.name for arm in comparison.arms] == ["joint", "base", "sft"]
    assert [list(start.arms) for start in comparison.starts] == [["base", "sft"]], "a chain has one beginning"
    assert "Each arm after its own steps" in (tmp_path / "out" / TABLE).read_text()


def test_stages_of_one_beginning_are_compared_and_others_are_not() -> None:
    base = by_problem("base", 0, drawn(0, 0.3), steps=0)
    joint = by_problem("joint", 0, drawn(1, 0.5), begins_with="sft", root_weights="cafe")
    assert joint.problems_before is not None
    joint = replace(joint, problems_before=replace(joint.problems_before, weights="after sft"))
    strange = replace(joint, arm="strange", root_weights="d00f")
    elsewhere = replace(joint, arm="elsewhere", problems_before=numbers([1], 0, problem_set="0ther"))
    unknown = replace(joint, arm="unknown", root_weights=None)
    (comparison,) = compare_arms([base, joint, strange, elsewhere, unknown])
    measured = {(each.arm, each.reference) for each in measure_differences(comparison)}
    assert ("joint", "base") in measured
    assert ("joint", BEFORE) in measured
    assert not {("strange", "base"), ("elsewhere", "base"), ("unknown", "base"), ("base", BEFORE)} & measured
    text = comparison_text(comparison)
    assert "Not compared, since they began with other weights: strange-s0 and base-s0." in text
    assert "Not compared, since they were measured on other problems: elsewhere-s0 and base-s0." in text
    why = "nothing says what their chains began with: the first run of one was not measured"
    assert f"Not compared, since {why}: unknown-s0 and base-s0." in text


def test_a_result_of_another_folder_is_taken_unless_its_weights_are_needed(
    runs: dict[str, PlannedRun], tmp_path: Path
) -> None:
    for run in runs.values():
        if run.name not in ("joint-s0",):
            finish(run)
    write_experiment_report(experiment(tmp_path, CHAIN), tmp_path / "out", list(runs.values()), 1)
    there = plan_runs(experiment(tmp_path, CHAIN), tmp_path / "there", [])
    taken, _ = take_results(there, [tmp_path / "out" / RESULTS], lambda text: None)
    assert {run.name for run in taken if run.elsewhere is None} == {"joint-s0", "audit-s0", "sft-s0"}
    (audit,) = [run for run in taken if run.name == "audit-s1"]
    assert audit.found == PASSES


TAUGHT = """
arms:
  pupil:
    after: [first, teacher]
    objective.name: supervised
    loss.name: policy_gradient
    scaffold.name: given
    scaffold.rows: $teacher/rows.jsonl
    train.rollouts: 1
    evaluate.every: 0
    steps: 12
  first: {objective.name: grpo, steps: 12, evaluate.every: 4}
  teacher: {command: write-rows, objective.name: grpo, steps: 0}
"""


def test_a_folder_of_another_arm_is_waited_for_and_part_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    runs = {run.arm: run for run in runs_of(tmp_path, TAUGHT)}
    rows, pupil = str(tmp_path / "out/teacher-s0/rows.jsonl"), runs["pupil"]
    assert f"scaffold.rows={rows}" in pupil.command
    assert pupil.config.model.path == str(tmp_path / "out/first-s0/model")
    assert "scaffold.rows=$teacher/rows.jsonl" in pupil.keys
    assert not any(str(tmp_path) in key for key in pupil.keys), "a results.json of another folder is recognised"
    check_runs([pupil], 1)
    fails = scripted(runs["teacher"], "raise SystemExit(1)")
    found, said = outcomes([pupil, that_finishes(runs["first"], tmp_path), fails])
    assert found == {"first-s0": "finished", "teacher-s0": "failed"}
    assert "pupil-s0: is not started, since teacher-s0 is not finished" in said
    finish(runs["teacher"])
    assert runs["teacher"].finished
    again = {run.arm: run for run in runs_of(tmp_path, TAUGHT)}["pupil"]
    assert again.config.scaffold.parameters["rows"] == rows
    assert again.keys == pupil.keys
    assert not again.finished
    with pytest.raises(UsageError, match=r"rows\.jsonl"):
        check_runs([again], 1)


def test_an_arm_with_a_model_of_its_own_only_waits(tmp_path: Path) -> None:
    text = "arms: {a: {steps: 2}, b: {after: a, model.path: null, steps: 2}}"
    a, b = runs_of(tmp_path, text)
    assert (b.before, b.begins_with, b.config.model.path) == ((a,), None, None)
