"""`raypoly audit-plans`, before joint training: plans and attempts as training draws them, and no update.

Its groups are those of a first step over more problems, in the journal like any step's: a killed audit goes on with
them, and ends with the same numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import typer

from actors.learner import LearnerActor
from raypoly.algorithms import objectives
from raypoly.algorithms.objectives.objective_hooks import needed_stages
from raypoly.commands.command_options import ConfigPath, DryRun, Overrides
from raypoly.core import settings
from raypoly.core.config import Config
from raypoly.core.errors import TooManySetAside, UsageError
from raypoly.core.values import Float64, Group, Problem
from raypoly.data.problem_order import EpochOrder
from raypoly.data.problem_set import with_tests
from raypoly.recipes.cppo.audit import AUDITED, PlanAudit
from raypoly.rollouts import scaffolds
from raypoly.run.run_identity import resolve_run
from workflows.liveness.shutdown import Shutdown, run_workflow
from workflows.startup.open_run import OpenRun, open_run
from workflows.step.rollouts import RolloutSubmission
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import TrainingGroup


def audit_plans_command(
    overrides: Overrides = None,
    config: ConfigPath = None,
    least_pass: float = 0.0,
    least_density: float = 0.0,
    problems: Annotated[int, typer.Option(min=1)] = AUDITED,
    dry_run: DryRun = False,
) -> None:
    """Say whether a planner's plans give joint training anything to learn from: docs/cppo.md."""
    chosen = settings.load(config, overrides or [], lambda text: None)
    check_audit(chosen, least_pass, least_density)
    if not dry_run:
        audit_plans(chosen, least_pass, least_density, problems)


def audit_plans(config: Config, least_pass: float, least_density: float, asked: int = AUDITED) -> None:
    """Audit plans of `asked` training problems, or go on; a finished audit is left as it is."""
    directory = resolve_run(config)
    print(directory.uri, flush=True)
    if PlanAudit.read(directory.path) is not None:
        return
    shutdown = Shutdown(config.run.grace_seconds)

    async def work() -> None:
        async with open_run(directory, shutdown, samples=True) as opened:
            await opened.weights.sync()
            print(await audit(opened, least_pass, least_density, asked), flush=True)

    run_workflow(work(), shutdown)


def check_audit(config: Config, least_pass: float, least_density: float) -> None:
    """Raises `UsageError` where the config can't be audited, or its folder has an audit of other thresholds."""
    scaffold, rollouts = scaffolds.of_run(config), config.train.rollouts
    attempts = scaffold.planned_drafts(rollouts) and scaffold.planned_attempts(rollouts)
    if not attempts or "gate" not in needed_stages(objectives.of_run(config)):
        raise UsageError(
            "audit-plans needs plans, attempts after them and a gate: set scaffold.name=tuple, objective.name=cppo "
            "and no scaffold.solve=false."
        )
    if config.train.steps:
        raise UsageError("audit-plans updates nothing: set train.steps=0 (steps: 0 of an experiment's arm).")
    place = resolve_run(config).path
    found = PlanAudit.read(place)
    if found is not None and (found.least_pass, found.least_density) != (least_pass, least_density):
        raise UsageError(
            f"{place} was audited with least-pass={found.least_pass:g} and least-density={found.least_density:g}: "
            "give them back, or give the arm another name."
        )


async def audit(opened: OpenRun, least_pass: float, least_density: float, asked: int = AUDITED) -> PlanAudit:
    """Draw, audit, and commit. Raises `TooManySetAside` where no problem's tests can be run."""
    train = with_tests(opened.problems.splits["train"])
    problems = EpochOrder(train, min(asked, len(train)), opened.config.train.seed).batch(0)
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
    result = found.result(len(drawn), await opened.services.learner.ask("update", LearnerActor.digest))
    opened.observers.summary.write("finished")
    result.write(opened.durability.store)
    return found


async def _drawn(opened: OpenRun, problems: Sequence[Problem]) -> Sequence[TrainingGroup]:
    """Groups that went through every stage of training."""
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
