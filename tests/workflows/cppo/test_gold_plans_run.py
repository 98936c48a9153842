"""The product's loop on plans that are given: they are the attempts, and nothing is sampled or run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from raypoly.core.config import Config
from raypoly.core.settings import load
from raypoly.core.values import Int32
from raypoly.data.puzzles import load_puzzles, puzzle_of
from raypoly.recipes.cppo.plan_contract import read_plan
from raypoly.recipes.cppo.puzzle_plans import is_gold
from raypoly.rollouts.scaffolds.run_scaffolds import fit_problems
from raypoly.run.store.step_records import CompletedStep
from tests.support.service_times import Times
from tests.support.timed_run import close_run, open_timed_run
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.test_given_run import NoEngine
from tests.workflows.step.virtual_run import ROLLOUTS, SMALL, Recorded
from workflows.startup.open_run import OpenRun
from workflows.train import Training

CONFIG = load(
    None,
    [
        *SMALL,
        "objective.name=supervised",
        "scaffold.name=gold_plans",
        "scaffold.replay=.5",
        "generator.max_prompt_tokens=200",
        "generator.max_tokens=400",
    ],
    str,
)
PROBLEMS = fit_problems(load_puzzles(CONFIG.problems), CONFIG).splits["train"][:12]


class Bytes(NoEngine):
    async def encode(self, texts: Sequence[str]) -> list[Int32]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]


async def opened_at(folder: Path) -> OpenRun:
    def learner(config: Config, journal: Any, writer: Any, groups: int) -> Recorded:
        return Recorded(config, journal, writer, 1)

    times, generator = Times.drawn(1, 4), Bytes((), True)
    opened = await open_timed_run(folder, times, config=CONFIG, generator=generator, learner=learner, problems=PROBLEMS)
    await opened.services.learner.start()
    return opened


def first_step(folder: Path) -> CompletedStep:
    async def work() -> CompletedStep:
        opened = await opened_at(folder)
        await opened.weights.sync()
        await Training(opened).step(0)
        found = opened.durability.journal.load_step(0)
        await close_run(opened)
        return found

    return run_virtual(work())


def test_attempts_are_gold_plans_and_solutions_with_advantage_one(tmp_path: Path) -> None:
    step, by_id = first_step(tmp_path), {problem.id: problem for problem in PROBLEMS}
    plans = solutions = 0
    for group, advantages in zip(step.groups, step.advantages, strict=True):
        assert len(group.rollouts) == ROLLOUTS
        assert not group.drafts
        assert (advantages == 1).all()
        assert {verdict.status for verdict in group.verdicts or ()} == {"no_code"}
        for rollout in group.rollouts:
            assert np.isnan(rollout.logprobs).all()
            plan = read_plan(rollout.text)
            plans += plan.keeps
            solutions += not plan.branches[0]
            assert plan.keeps == is_gold(puzzle_of(by_id[group.problem_id]), plan.branches)
    assert plans + solutions == 4 * ROLLOUTS
    assert plans
    assert solutions
