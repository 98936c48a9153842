"""Arms that train a gate or audit plans: what is wrong with them is said before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from raypoly.analysis.experiments.planned_runs import PlannedRun, check_runs, plan_runs
from raypoly.core import settings
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.recipes.cppo.gate_folder import read_gate
from raypoly.run.store import open_store
from tests.raypoly.analysis.experiments.made_experiments import experiment, finish, runs_of
from tests.raypoly.recipes.cppo.gate_folders import GATE_NUMBERS, sealed_gate
from tests.support.finished_run import write_finished_run
from workflows.cppo.gate_training import check_gate, gate_result
from workflows.cppo.plan_audit import PlanAudit, check_audit

GATE = "stages.own: [model_gate], stages.gate.path: $gate/model"
CPPO = f"{GATE}, objective.name: cppo, scaffold.name: tuple, loss.name: clipped_surrogate"
LONG = "train.rollouts: 16, evaluate.samples: 16, evaluate.validation_samples: 16, generator.max_prompt_tokens: 196"
ARMS = f"""
seeds: [0]
arms:
  joint: {{after: [audit, gate], {CPPO}, {LONG}, steps: 12, evaluate.every: 4}}
  audit: {{after: [sft, gate], command: audit-plans, options: {{problems: 64}}, steps: 0, {CPPO}, {LONG}}}
  sft: {{objective.name: grpo, steps: 12, evaluate.every: 4}}
  gate: {{command: train-gate, options: {{recall: 0.9}}, objective.name: supervised, scaffold.name: labelled_plans,
         loss.name: policy_gradient, steps: 12}}
"""


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, PlannedRun]:
    (tmp_path / "out").mkdir()
    return {run.arm: run for run in runs_of(tmp_path, ARMS)}


def config(*words: str) -> Config:
    return settings.load(None, words, str)


def test_the_commands_look_at_their_arms_before_anything_starts(runs: dict[str, PlannedRun], tmp_path: Path) -> None:
    assert runs["gate"].command[3:5] == ["train-gate", "--recall=0.9"]
    assert f"stages.gate.path={tmp_path / 'out/gate-s0/model'}" in runs["audit"].command
    check_runs(list(runs.values()), 1)
    wrong = "arms: {a: {steps: 2}, b: {after: a, command: audit-plans, steps: 0, objective.name: grpo}}"
    with pytest.raises(UsageError, match=r"^Arm b: audit-plans needs plans"):
        check_runs(runs_of(tmp_path, wrong), 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["objective.name=grpo"], "audit-plans needs plans"),
        (["objective.name=cppo", "scaffold.name=tuple", "scaffold.solve=false"], "audit-plans needs plans"),
        (["objective.name=cppo", "scaffold.name=tuple", "train.rollouts=16"], r"set train\.steps=0"),
    ],
)
def test_what_no_audit_can_look_at_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_audit(config(*words), 0.0, 0.0)


def test_a_gate_needs_labelled_plans_or_rows(tmp_path: Path) -> None:
    given = config("objective.name=supervised", "scaffold.name=given", f"scaffold.rows={tmp_path}/rows.jsonl")
    with pytest.raises(UsageError, match=r"train-gate needs labelled plans: .* or scaffold\.name=given and held-out"):
        check_gate(given, 0.95, None, None)
    check_gate(given, 0.95, None, "held_out.jsonl")


def test_an_audit_keeps_its_thresholds(tmp_path: Path) -> None:
    own = ["scaffold.name=tuple", "loss.name=clipped_surrogate", "train.rollouts=16"]
    place = write_finished_run(tmp_path / "audit", "cppo", True, *own)
    PlanAudit(0.5, 0.7, 0.4, auc=0.58).result(64).write(open_store(place))
    audited = config(*own, "objective.name=cppo", "train.steps=0", "evaluate.every=4", f"run.dir={place}")
    check_audit(audited, 0.0, 0.0)
    with pytest.raises(UsageError, match=r"was audited with least-pass=0 and least-density=0: give them back"):
        check_audit(audited, 0.0, 0.5)


def test_a_gates_hash_is_part_of_the_runs_after_it(runs: dict[str, PlannedRun], tmp_path: Path) -> None:
    found = gate_result(read_gate(sealed_gate(tmp_path / "gate", recall=0.9)))
    assert found.numbers == {**GATE_NUMBERS, "tau": 0.17}
    finish(runs["gate"], found=found)
    sealed_gate(runs["gate"].weights, recall=0.9)
    for arm in ("sft", "audit"):
        finish(runs[arm])
    again = {run.arm: run for run in runs_of(tmp_path, ARMS)}
    assert again["joint"].config.stages.parameters["gate"]["sha256"]
    assert again["joint"].keys == runs["joint"].keys
    assert again["joint"].config.model.path == str(tmp_path / "out/sft-s0/model"), "an audit changes no weights"


def test_the_page_shows_a_chain_that_is_taken(tmp_path: Path) -> None:
    page = (settings.CONFIGS.parent / "docs" / "cppo.md").read_text()
    text = page.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "planner.yaml").write_text("scaffold: {name: tuple}\nloss: {name: clipped_surrogate}\n")
    shown = text.replace("planner.yaml", str(tmp_path / "planner.yaml"))
    runs = {run.name: run for run in plan_runs(experiment(tmp_path, shown), tmp_path / "out", [])}
    assert len(runs) == 21
    joint = runs["joint-s2"]
    assert [run.arm for run in joint.before] == ["audit", "gate"]
    assert (joint.root.arm, joint.weights.name) == ("sft", "model")
