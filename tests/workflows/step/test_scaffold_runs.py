"""Real runs of several rounds or turns: killed, they end with the same bits, and no hidden test is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from raypoly import Run
from raypoly.data import build_problem_set
from raypoly.data.public_tests import set_apart
from tests.support.local_driver import LocalDriver, run_killed_driver
from tests.support.ray_machines import Machines

ROOM = ("generator.max_prompt_tokens=196", "train.steps=2", "train.rollouts=6")
KEYS = {
    "repair": ("environment.name=repair", "environment.max_turns=3", "generator.turns=ordered"),
    "plan_search": ("scaffold.name=plan_search", "scaffold.plans=3", "scaffold.plan_tokens=8"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["repair", "plan_search"])
def test_a_real_run_that_is_killed_ends_with_the_same_weights_drafts_and_turns(
    machines: Machines, small_run: list[str], tmp_path: Path, name: str
) -> None:
    keys = [*small_run, *ROOM, *KEYS[name]]
    whole = LocalDriver(tmp_path / "whole", keys, {"RAY_ADDRESS": machines.address})
    assert whole.finish() == 0, whole.log()
    run_killed_driver(machines, whole, tmp_path / "hit", keys, after=(1, 3, 9))
    run = Run(whole.folder)
    if name == "repair":
        shows_no_hidden_test(run)
    else:
        assert set(run.drafts(0).column("role").to_pylist()) == {"observe", "observe_more", "plan"}


def shows_no_hidden_test(run: Run) -> None:
    """Every input and result that any observation of the run shows is of a public test."""
    problems = {it.id: set_apart(it, 2) for it in build_problem_set(run.config.problems).splits["train"]}
    shown = 0
    for step in run.steps:
        for row in run.rollouts(step).select(["problem_id", "turns"]).to_pylist():
            said = "\n".join(turn["text"] for turn in row["turns"] if turn["role"] != "assistant") + "\n"
            problem = problems[row["problem_id"]]
            assert problem.public_tests is not None
            cases = json.loads(problem.public_tests.source)
            inputs = {", ".join(map(repr, case["args"])) for case in cases}
            expected = {repr(case["expected"]) for case in cases}
            for found in re.findall(r"# Input: \w+\((.*)\)\n", said):
                assert found in inputs
                shown += 1
            assert set(re.findall(r"# Expected: (.*)\n", said)) <= expected
    assert shown
