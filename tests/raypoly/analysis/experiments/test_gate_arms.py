"""Arms that train a gate: what is after one waits for it, has its hash, and goes on with its threshold alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from raypoly.analysis.experiments.planned_runs import check_runs
from raypoly.analysis.reports.experiment_report import TABLE, write_experiment_figures, write_experiment_report
from raypoly.core.errors import UsageError
from tests.raypoly.analysis.experiments.made_experiments import experiment, finish, runs_of, scripted, that_finishes
from tests.raypoly.analysis.experiments.test_stages import CPPO, LONG, outcomes
from tests.support.gate_folders import GATE_NUMBERS, sealed_gate

GATED = f"""
seeds: [0]
arms:
  warm_up: {{after: sft, gate: gate, {CPPO}, {LONG}, objective.reward: gate, scaffold.solve: false, steps: 12}}
  sft: {{objective.name: grpo, steps: 12, evaluate.every: 4}}
  gate: {{kind: gate, recall: 0.9, objective.name: supervised, scaffold.name: labelled_plans, steps: 12}}
"""


def test_an_arm_waits_for_its_gate_and_its_hash_is_part_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    before = {run.arm: run for run in runs_of(tmp_path, GATED)}
    assert "gate.name=model" in before["warm_up"].command
    assert f"gate.path={tmp_path / 'out/gate-s0/model'}" in before["warm_up"].command
    assert before["gate"].command[2:5] == ["raypoly.cli", "train-gate", "--recall=0.9"]
    check_runs(list(before.values()), 1)
    finish(before["gate"])
    assert not before["gate"].finished, "it is trained, and not accepted"
    sealed_gate(before["gate"].weights, recall=0.9)
    assert before["gate"].finished
    assert before["gate"].result.gate == {**GATE_NUMBERS, "tau": 0.17}
    after = {run.arm: run for run in runs_of(tmp_path, GATED)}
    assert after["warm_up"].config.gate.parameters["sha256"]
    assert after["warm_up"].keys == before["warm_up"].keys
    assert not before["warm_up"].finished
    with pytest.raises(UsageError, match=r"^Arm b: kind: gate is trained on labelled plans"):
        check_runs(runs_of(tmp_path, "arms: {a: {steps: 2}, b: {kind: gate, objective.name: grpo}}"), 1)


@pytest.mark.parametrize(
    ("sealed", "now", "said"),
    [
        (
            {"recall": 0.9},
            "recall: 0.8",
            r"sealed with recall=0\.9, and recall=0\.8 is asked for: give recall=0\.9 back",
        ),
        ({"recall": 0.9}, "tau: 0.3", r"sealed with recall=0\.9, and tau=0\.3 is asked for"),
        ({"recall": None, "tau": 0.3}, "recall: 0.9", r"sealed with tau=0\.3, and recall=0\.9 is asked for"),
        ({"recall": None, "tau": 0.3}, "tau: 0.17", r"sealed with tau=0\.3, and tau=0\.17 is asked for"),
    ],
)
def test_an_accepted_gate_keeps_its_threshold(
    tmp_path: Path, sealed: dict[str, float | None], now: str, said: str
) -> None:
    (tmp_path / "out").mkdir()
    (gate,) = [run for run in runs_of(tmp_path, GATED) if run.arm == "gate"]
    finish(gate)
    sealed_gate(gate.weights, **sealed)  # type: ignore[arg-type]
    had = f"tau: {sealed['tau']}" if "tau" in sealed else f"recall: {sealed['recall']}"
    assert {run.arm: run for run in runs_of(tmp_path, GATED.replace("recall: 0.9", had))}["gate"].finished
    with pytest.raises(UsageError, match=f"^Arm gate: .*gate-s0 was {said}.*give the arm another name") as refused:
        runs_of(tmp_path, GATED.replace("recall: 0.9", now))
    assert "\n" not in str(refused.value)


def test_where_a_gate_is_not_accepted_nothing_behind_it_starts(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    runs = {run.arm: run for run in runs_of(tmp_path, GATED)}
    refuses = scripted(runs["gate"], "print('The gate is not accepted: AUC 0.6 is below 0.75.'); raise SystemExit(1)")
    found, said = outcomes([runs["warm_up"], that_finishes(runs["sft"], tmp_path), refuses])
    assert found == {"sft-s0": "finished", "gate-s0": "failed"}
    assert any("AUC 0.6 is below 0.75" in line for line in said)
    assert "warm_up-s0: is not started, since gate-s0 is not finished" in said


def test_gates_have_a_table_and_no_row_among_the_arms(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    runs = runs_of(tmp_path, GATED)
    for run in runs:
        if run.arm != "warm_up":
            finish(run)
    sealed_gate(tmp_path / "out/gate-s0/model", recall=0.9)
    results = write_experiment_report(experiment(tmp_path, GATED), tmp_path / "out", runs_of(tmp_path, GATED), 1)
    table = (tmp_path / "out" / TABLE).read_text()
    assert "| gate-s0 | 40 | 0.900 | 0.800 | 0.800 | 0.950 | 0.170 |" in table
    assert "| **gate** |" not in table
    write_experiment_figures(results, tmp_path / "figures")
    assert "gate-s0,40,0.900," in (tmp_path / "figures" / "gates.csv").read_text()


PHASES = f"""{GATED}
  gate_2:
    kind: gate
    after: gate
    plans_of: [warm_up]
    objective.name: supervised
    scaffold.name: labelled_plans
    steps: 12
  warm_up_2: {{after: warm_up, gate: gate_2, {CPPO}, {LONG}, objective.reward: gate, scaffold.solve: false, steps: 12}}
"""


def test_a_second_gate_goes_on_from_the_first_with_the_plans_of_an_arm(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    runs = {run.arm: run for run in runs_of(tmp_path, PHASES)}
    gate_2 = runs["gate_2"]
    assert gate_2.config.model.path == str(tmp_path / "out/gate-s0/model")
    assert gate_2.config.scaffold.parameters["plans_of"] == [str(tmp_path / "out/warm_up-s0")]
    assert [run.arm for run in gate_2.before] == ["gate", "warm_up"]
    assert "plans of scaffold.name=tuple" in gate_2.keys
    assert not any(str(tmp_path) in key for key in gate_2.keys), "a results.json of another folder is recognised"
    check_runs(list(runs.values()), 1)
    finish(runs["gate"])
    sealed_gate(runs["gate"].weights, recall=0.9)
    again = {run.arm: run for run in runs_of(tmp_path, PHASES)}
    fails = scripted(again["warm_up"], "raise SystemExit(1)")
    sft = that_finishes(again["sft"], tmp_path)
    found, said = outcomes([again["gate"], sft, fails, again["gate_2"], again["warm_up_2"]])
    assert found == {"sft-s0": "finished", "warm_up-s0": "failed"}
    assert "gate_2-s0: is not started, since warm_up-s0 is not finished" in said
    assert "warm_up_2-s0: is not started, since warm_up-s0 is not finished" in said


def test_a_gate_of_rows_needs_rows_that_it_is_measured_on(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "response": "pass"}\n')
    own = f"kind: gate, objective.name: supervised, scaffold.name: given, scaffold.rows: {tmp_path}/rows.jsonl"
    keys = "train.rollouts: 1, evaluate.every: 0"
    with pytest.raises(UsageError, match=r"^Arm b: kind: gate .* or scaffold.name=given and held_out"):
        check_runs(runs_of(tmp_path, f"arms: {{a: {{steps: 2}}, b: {{{own}, {keys}}}}}"), 1)
    runs = runs_of(tmp_path, f"arms: {{b: {{{own}, {keys}, held_out: held_out.jsonl}}}}")
    check_runs(runs, 1)
    assert "--held-out=held_out.jsonl" in runs[0].command
