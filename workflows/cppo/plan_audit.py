"""The audit before joint training: plans and attempts as training draws them, and no update.

    audit_plans(config, least_pass=0.0, least_density=0.0)      # writes audit.json into the run's folder

Its groups are those of a first step over more problems, in the journal like any step's: a killed audit goes on with
them, and ends with the same numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from actors.learner import LearnerActor
from raypoly.core.config import Config
from raypoly.core.errors import TooManySetAside
from raypoly.core.values import Float64, Group, Problem
from raypoly.data.problem_order import EpochOrder
from raypoly.data.problem_set import with_tests
from raypoly.recipes.cppo.gates.audit import AUDIT_KEY, AUDITED, PlanAudit
from raypoly.run.run_identity import resolve_run
from raypoly.run.store.sealed_files import seal
from workflows.liveness.shutdown import Shutdown, run_workflow
from workflows.startup.open_run import OpenRun, open_run
from workflows.step.rollouts import RolloutSubmission
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import TrainingGroup


def audit_plans(config: Config, least_pass: float, least_density: float) -> None:
    """Audit, or go on; a finished audit is left as it is."""
    directory = resolve_run(config)
    print(directory.uri, flush=True)
    if PlanAudit.read(directory.path) is not None:
        return
    shutdown = Shutdown(config.run.grace_seconds)

    async def work() -> None:
        async with open_run(directory, shutdown, samples=True) as opened:
            await opened.weights.sync()
            print(await audit(opened, least_pass, least_density), flush=True)

    run_workflow(work(), shutdown)


async def audit(opened: OpenRun, least_pass: float, least_density: float) -> PlanAudit:
    """Draw, audit, and commit. Raises `TooManySetAside` where no problem's tests can be run."""
    train = with_tests(opened.problems.splits["train"])
    problems = EpochOrder(train, min(AUDITED, len(train)), opened.config.train.seed).batch(0)
    opened.observers.progress.note(f"Auditing plans of {len(problems)} training problems ...")
    drawn = [each for each in await _drawn(opened, problems) if opened.estimator.has_advantages(each.group)]
    if not drawn:
        raise TooManySetAside(f"No tests of the {len(problems)} training problems of the audit can be run.")

    def by_gate(column: str) -> Float64:
        return np.concatenate([np.asarray(each.group.findings["gate"][column], np.float64) for each in drawn])

    found = PlanAudit.of(
        [each.rewards[each.group.draft_of == place] for each in drawn for place in range(len(each.group.drafts))],
        by_gate("accepted"),
        least_pass,
        least_density,
        by_gate("p"),
    )
    facts = {"problems": len(drawn), "weights": await opened.services.learner.ask("update", LearnerActor.digest)}
    opened.observers.summary.write("finished")
    opened.durability.store.commit(AUDIT_KEY, seal({**found.values, **facts}))
    return found


async def _drawn(opened: OpenRun, problems: Sequence[Problem]) -> Sequence[TrainingGroup]:
    """The problems' groups, through every stage that training runs."""
    watch = Stopwatch(lambda stage, groups: opened.observers.progress.stage(stage, groups, len(problems)))

    async def flow(problem: Problem, sampled: asyncio.Future[Group]) -> TrainingGroup:
        group = await sampled
        for stage in opened.stages.stages:
            group = await opened.stages.advance(group, problem, stage, watch)
        return opened.estimator.estimate(group, problem)

    durability = opened.durability
    known = durability.journal.step(0)
    async with asyncio.TaskGroup() as tasks:
        submission = RolloutSubmission(
            opened.config, opened.scaffold, opened.services, durability.commit, tasks, known, watch
        )
        sampled = submission.groups(problems)
        flows = [tasks.create_task(flow(*each)) for each in zip(problems, sampled, strict=True)]
    return [each.result() for each in flows]
