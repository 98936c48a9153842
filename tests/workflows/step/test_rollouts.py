"""What a step samples: prompts that fit the generator, and no problem that the journal has begun as another."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from raypoly.algorithms.objectives.grpo import GRPO
from raypoly.core.errors import UsageError
from raypoly.data import ProblemSet
from tests.support.service_times import Times
from tests.support.timed_run import close_run, open_timed_run, timed_config
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import open_virtual, stopped_after
from workflows.train import Training

TWO_ROUNDS = "tests.workflows.step.test_scaffold_rounds:TwoRounds"


def test_a_run_whose_first_prompts_are_too_long_ends_before_its_first_step(tmp_path: Path) -> None:
    """Weights are verified with those prompts, and a run begins with that."""

    async def begun(limit: int) -> int:
        times = Times.drawn(1, 4)
        config = timed_config(
            len(times.groups), len(times.groups[0].programs), 2, f"generator.max_prompt_tokens={limit}"
        )
        opened = await open_timed_run(tmp_path / str(limit), times, config=config)
        try:
            return len(await opened.weights.probe_tokens())
        finally:
            await close_run(opened)

    assert run_virtual(begun(4)) == 4
    with pytest.raises(UsageError, match=r"has 4 tokens, generator\.max_prompt_tokens is 3: raise it"):
        run_virtual(begun(3))


class SeesAgain(GRPO):
    """It must see again, after a resume, what it saw since the checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        return {"seen": True}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is nothing else to it."""


def resumed(folder: Path, gone: Collection[str], *own: str) -> list[str]:
    """Go on where the run stands, with problems that are `gone`. The problems of its newest step."""

    async def work() -> list[str]:
        opened = await open_virtual(folder, overrides=own)
        splits = opened.problems.splits
        train = [problem for problem in splits["train"] if problem.id not in gone]
        opened.problems = ProblemSet({**splits, "train": train}, "")
        try:
            opened.restore()
            step = opened.services.learner.version
            await Training(opened).step(step)
            return [group.problem_id for group in opened.durability.journal.load_step(step).groups]
        finally:
            await close_run(opened)

    return run_virtual(work())


@pytest.mark.parametrize(("scaffold", "commits"), [("direct", 3), (TWO_ROUNDS, 3), (TWO_ROUNDS, 7)])
def test_rollouts_in_the_journal_never_meet_another_problem(tmp_path: Path, scaffold: str, commits: int) -> None:
    """Neither a group, nor drafts alone, which do not name their problem."""
    own = (f"scaffold.name={scaffold}",)
    run_virtual(stopped_after(open_virtual(tmp_path, overrides=own), commits))
    for _ in range(2):
        with pytest.raises(ExceptionGroup) as refused:
            resumed(tmp_path, {"p7"}, *own)
        said = r"^Step 1 was begun with .* where the problem set now has p\d+: bring the old problems back, or"
        assert refused.group_contains(UsageError, match=said)
    assert len(resumed(tmp_path, (), *own)) == 4


def test_a_step_that_an_objective_must_see_again_needs_its_problems(tmp_path: Path) -> None:
    own = (f"objective.name={__name__}:SeesAgain",)
    trained = resumed(tmp_path, (), *own)
    with pytest.raises(UsageError, match=rf"^Step 1 was trained on {trained[2]}, which is gone: bring the old"):
        resumed(tmp_path, {trained[2]}, *own)
    assert not set(resumed(tmp_path, (), *own)) & set(trained), "the next step"
