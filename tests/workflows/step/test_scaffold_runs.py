"""Real runs by scaffolds of several rounds: killed, they end with the same bits, and no prompt shows a hidden test."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from raypoly import Run
from raypoly.data import build_problem_set
from raypoly.data.public_tests import set_apart
from tests.support.local_driver import LocalDriver, run_killed_driver
from tests.support.ray_machines import Machines

ROOM = ("generator.max_prompt_tokens=196", "train.steps=2", "train.rollouts=6")
PROGRAMS = {
    "repair": ("scaffold.name=repair", "scaffold.turns=2", "scaffold.credit=all"),
    "plan_search": ("scaffold.name=plan_search", "scaffold.plans=3", "scaffold.plan_tokens=8"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["repair", "plan_search"])
def test_a_real_run_that_is_killed_ends_with_the_same_weights_and_drafts(
    machines: Machines, small_run: list[str], tmp_path: Path, name: str
) -> None:
    keys = [*small_run, *ROOM, *PROGRAMS[name]]
    whole = LocalDriver(tmp_path / "whole", keys, {"RAY_ADDRESS": machines.address})
    assert whole.finish() == 0, whole.log()
    run_killed_driver(machines, whole, tmp_path / "hit", keys, after=(1, 3, 9))
    run = Run(whole.folder)
    drafts = run.drafts(0)
    assert set(drafts.column("role").to_pylist()) == (
        {"try"} if name == "repair" else {"observe", "observe_more", "plan"}
    )
    if name == "repair":
        shows_no_hidden_test(run)


def shows_no_hidden_test(run: Run) -> None:
    """Every input and result that any prompt of the run shows is of a public test."""
    tokenizer = AutoTokenizer.from_pretrained(run.directory / "model")
    problems = {it.id: set_apart(it, 2) for it in build_problem_set(run.config.problems).splits["train"]}
    shown = 0
    for step in run.steps:
        for table in (run.rollouts(step), run.drafts(step)):
            for row in table.select(["problem_id", "prompt_tokens"]).to_pylist():
                prompt, problem = tokenizer.decode(row["prompt_tokens"]), problems[row["problem_id"]]
                assert problem.public_tests is not None
                cases = json.loads(problem.public_tests.source)
                inputs = {", ".join(map(repr, case["args"])) for case in cases}
                expected = {repr(case["expected"]) for case in cases}
                for found in re.findall(r"# Input: \w+\((.*)\)\n", prompt):
                    assert found in inputs
                    shown += 1
                assert set(re.findall(r"# Expected: (.*)\n", prompt)) <= expected
    assert shown
