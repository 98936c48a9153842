"""Stages of real runs: one begins with the weights of another, or not at all, and a second gate follows the first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raypoly import Run
from raypoly.recipes.cppo.gate_folder import read_gate
from tests.support.ray_machines import Machines
from tests.workflows.test_experiment import shared, start
from workflows.cppo.plan_audit import PlanAudit

ARMS = """
arms:
  first: {objective.name: grpo, steps: 1}
  again: {after: first, command: evaluate, objective.name: grpo}
  audit: {after: first, command: audit-plans, steps: 0, objective.name: cppo, scaffold.name: tuple}
  joint: {after: audit, objective.name: cppo, scaffold.name: tuple, steps: 1}
"""


@pytest.mark.slow
def test_a_chain_hands_on_its_weights_and_ends_where_the_audit_refuses(
    machines: Machines, warm_model: Path, tmp_path: Path
) -> None:
    own = ["train.rollouts=4", "evaluate.every=2", "evaluate.samples=8", "evaluate.validation_samples=8"]
    words = [
        *shared(),
        *own,
        f"model.path={warm_model}",
        "generator.engine=transformers",
        "loss.name=clipped_surrogate",
        "generator.max_prompt_tokens=196",
    ]
    (tmp_path / "mine.yaml").write_text(ARMS)
    (tmp_path / "words.json").write_text(json.dumps(words))
    assert start(tmp_path, machines).wait(600) == 1
    log, out = (tmp_path / "experiment.log").read_text(), tmp_path / "out"
    assert "joint-s0: is not started, since audit-s0 does not pass" in log
    assert "go back to gate and warm_up" in log or "go back to sft" in log
    first, again = (Run(out / name).summary["evaluations"] for name in ("first-s0", "again-s0"))
    ended = next(each for each in first if each["step"] == 1 and each["split"] == "test")
    (began,) = [each for each in again if each["split"] == "test"]
    assert (began["weights"], began["pass_at_k"]) == (ended["weights"], ended["pass_at_k"])
    audit = PlanAudit.read(out / "audit-s0")
    assert audit is not None
    assert not audit.passes
    assert json.loads((out / "audit-s0/result.json").read_text())["numbers"]["problems"] == 64
    assert not (out / "joint-s0").exists()


PHASES = """
arms:
  gate: &gate
    command: train-gate
    objective.name: supervised
    scaffold.name: labelled_plans
    train.rollouts: 8
    train.prompts_per_step: 16
    train.lr: 3.0e-3
    train.schedule: cosine
    train.warmup_steps: 10
    steps: 200
  warm_up:
    <<: &planner
      stages.own: [model_gate]
      objective.name: cppo
      objective.reward: gate
      loss.name: clipped_surrogate
      scaffold.name: tuple
      scaffold.solve: false
      scaffold.plan_tokens: 96
      train.rollouts: 16
      steps: 2
    after: gate
    stages.gate.path: $gate/model
    model.path: null
  gate_2:
    <<: *gate
    after: [gate, warm_up]
    scaffold.plans_of: [$warm_up]
    train.lr: 3.0e-4
    train.warmup_steps: 0
    steps: 10
  warm_up_2: {<<: *planner, after: [warm_up, gate_2], stages.gate.path: $gate_2/model}
"""


@pytest.mark.slow
def test_a_second_gate_goes_on_from_the_first_and_accepts_the_plans_of_the_next_phase(
    machines: Machines, tmp_path: Path
) -> None:
    words = [text for text in shared() if not text.startswith(("problems.", "train."))]
    words += ["warm_start.planned=.6", "generator.engine=transformers", "generator.max_prompt_tokens=196"]
    words += ["generator.max_tokens=96", "evaluate.every=0"]
    (tmp_path / "mine.yaml").write_text(PHASES)
    (tmp_path / "words.json").write_text(json.dumps(words))
    code = start(tmp_path, machines).wait(1200)
    assert code == 0, (tmp_path / "experiment.log").read_text()
    out = tmp_path / "out"
    first, second = (read_gate(out / f"{name}-s0/model") for name in ("gate", "gate_2"))
    assert first.weights != second.weights
    assert Run(out / "warm_up-s0").drafts(1).num_rows, "there were plans to learn from"
    assert Run(out / "warm_up_2-s0").config.stages.parameters["gate"]["path"] == str(out / "gate_2-s0/model")
    assert "| gate_2-s0 |" in (out / "table.md").read_text()
