"""Stages of real runs: one begins with the weights of another, and a base that can't plan is refused by the audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raypoly import Run
from raypoly.gates.audit import PlanAudit
from tests.support.ray_machines import Machines
from tests.workflows.test_experiment import shared, start

ARMS = """
arms:
  first: {objective.name: grpo, steps: 1}
  again: {after: first, kind: evaluate, objective.name: grpo}
  audit: {after: first, kind: audit, objective.name: cppo, program.name: tuple}
  joint: {after: audit, objective.name: cppo, program.name: tuple, steps: 1}
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
    assert json.loads((out / "audit-s0/audit.json").read_text())["problems"] == 64
    assert not (out / "joint-s0").exists()
