"""`raypoly audit-plans`, before joint training: do a planner's plans give it anything to learn from (arXiv 2605.27000)?

    found = PlanAudit.of(outcomes=[[1, 0], [0, 0]], accepted=[1, 1], p=[.9, .6])
    found.passes, found.go_back_to, found.auc
    PlanAudit.read(Path("out/audit-s0"))                  # of a run's folder

Plans and attempts are drawn as training draws them, and nothing is updated.

Its groups are those of a first step over more problems, in the journal like any step's: a killed audit goes on with
them, and ends with the same numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import typer
from numpy.typing import ArrayLike

from actors.learner import LearnerActor
from raypoly.algorithms import objectives
from raypoly.algorithms.objectives.objective import needed_stages
from raypoly.analysis.experiments.run_result import RESULT_KEY, CommandResult
from raypoly.commands.command_options import ConfigPath, DryRun, Overrides
from raypoly.core.config import Config
from raypoly.core.errors import TooManySetAside, UsageError
from raypoly.core.values import Float64, Group, Problem
from raypoly.data.problem_order import EpochOrder
from raypoly.data.problem_set import with_tests
from raypoly.planning.run_config import load_run_config
from raypoly.recipes.cppo.gate_validation import auc
from raypoly.rollouts import scaffolds
from raypoly.run.run_identity import resolve_run
from raypoly.run.store import open_store
from workflows.liveness.shutdown import Shutdown, run_workflow
from workflows.startup.open_run import OpenRun, open_run
from workflows.step.rollouts import RolloutSubmission
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import TrainingGroup

TITLE = "Audits (docs/cppo.md), of training problems"
AUDITED = 64
"""Training problems; all of them where there are fewer."""


@dataclass(frozen=True)
class PlanAudit:
    """Of M tuples of K attempts, over all problems."""

    pass_at_k: float
    """Share of tuples of which an attempt passed."""
    accepted: float
    """Share that the gate accepts."""
    density: float
    """Share with R_plan > 0: both."""
    least_pass: float = 0.0
    least_density: float = 0.0
    auc: float | None = None
    """Of the gate's p against whether an attempt passed. None where p is unknown, or all tuples or none passed."""

    @classmethod
    def of(
        cls,
        outcomes: Sequence[ArrayLike],
        accepted: ArrayLike,
        least_pass: float = 0.0,
        least_density: float = 0.0,
        p: ArrayLike | None = None,
    ) -> Self:
        """From rewards of attempts, [M][K], J, [M], and perhaps p, [M]. Raises `ValueError` for none."""
        passed = np.array([np.max(np.asarray(each)) > 0 for each in outcomes])
        gate = np.asarray(accepted).astype(bool)
        if not len(passed) or passed.shape != gate.shape:
            raise ValueError(f"an audit needs tuples, each with J: got {len(passed)} tuples and J of {gate.shape}")
        found = float(passed.mean()), float(gate.mean()), float((passed & gate).mean())
        return cls(*found, least_pass, least_density, None if p is None else auc(p, passed))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """None where a run's folder has none yet. Raises `UsageError` where it is damaged."""
        if not (folder / RESULT_KEY).exists():
            return None
        found = CommandResult.read(open_store(folder, make=False))
        return None if found is None else cls(**{name: found.numbers[name] for name in cls.__dataclass_fields__})  # type: ignore[arg-type]

    @property
    def passes(self) -> bool:
        return self.pass_at_k > self.least_pass and self.density > self.least_density

    @property
    def go_back_to(self) -> str | None:
        """The stage to repeat: gate and warm-up where fewer plans are accepted than solved, else `sft`."""
        if self.passes:
            return None
        return "gate and warm_up" if self.accepted < self.pass_at_k else "sft"

    @property
    def parts(self) -> Mapping[str, float]:
        """Shares by gate and outcome, which add up to 1."""
        solved, failed = self.density, self.accepted - self.density
        return {
            "accepted_solved": solved,
            "accepted_failed": failed,
            "rejected_solved": self.pass_at_k - solved,
            "rejected_failed": max(0.0, 1 - self.pass_at_k - failed),
        }

    @property
    def pass_if_accepted(self) -> float | None:
        """None where no tuple is accepted."""
        return self.density / self.accepted if self.accepted > 0 else None

    @property
    def pass_if_rejected(self) -> float | None:
        """None where no tuple is rejected."""
        return (self.pass_at_k - self.density) / (1 - self.accepted) if self.accepted < 1 else None

    def result(self, problems: int, weights: str | None = None) -> CommandResult:
        """`problems`: how many were audited; `weights`: the digest of the planner's."""
        rates = {"pass_if_accepted": self.pass_if_accepted, "pass_if_rejected": self.pass_if_rejected}
        numbers = {"problems": problems, **asdict(self), **rates, **self.parts}
        return CommandResult("audit-plans", TITLE, numbers, str(self), self.go_back_to, weights)

    def __str__(self) -> str:
        return (
            f"{self.pass_at_k:.3f} of the tuples passed, {self.accepted:.3f} were accepted, {self.density:.3f} were "
            "both"
        )


def audit_plans_command(
    overrides: Overrides = None,
    config: ConfigPath = None,
    least_pass: float = 0.0,
    least_density: float = 0.0,
    problems: Annotated[int, typer.Option(min=1)] = AUDITED,
    dry_run: DryRun = False,
) -> None:
    """Say whether a planner's plans give joint training anything to learn from: docs/cppo.md."""
    chosen = load_run_config(config, overrides or [])
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
    if config.distill.teacher:
        raise UsageError("audit-plans asks no teacher: leave distill.teacher out.")
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
    tried = [each for each in await _drawn(opened, problems) if not each.unknown]
    drawn = [each for each in tried if opened.estimator.has_advantages(each.group)]
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
        asking = opened.scaffold, opened.environment
        submission = RolloutSubmission(opened.config, *asking, opened.services, durability.commit, tasks, known, watch)
        sampled = submission.groups(problems)
        flows = [tasks.create_task(flow(*each)) for each in zip(problems, sampled, strict=True)]
    return [each.result() for each in flows]
