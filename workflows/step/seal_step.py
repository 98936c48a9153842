"""The end of a step: its row of metrics is committed, its rollout file written, and every so often a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError
from raypoly.data.pass_rates import pass_count_row
from raypoly.learner.update_stats import UpdateStats
from raypoly.run.store.step_records import Applied
from workflows.step.learner_session import RANKS
from workflows.step.run_durability import CURSOR, RunDurability
from workflows.step.run_observers import RunObservers
from workflows.step.services import Services
from workflows.step.stages import StageRunner
from workflows.step.step_metrics import metrics_row
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import TrainingGroup
from workflows.step.weight_sync import WeightSync


class StepSealer:
    """Seals one run's steps, one after the other."""

    def __init__(
        self,
        config: Config,
        services: Services,
        durability: RunDurability,
        observers: RunObservers,
        stages: StageRunner,
        weights: WeightSync,
    ) -> None:
        self._config, self._services, self._stages, self._weights = config, services, stages, weights
        self._durability, self._observers = durability, observers
        self._groups = self._unjudged = 0

    async def seal(
        self,
        step: int,
        groups: Sequence[TrainingGroup],
        stats: UpdateStats,
        applied: Applied | None,
        watch: Stopwatch,
        cursor: int,
    ) -> None:
        """Commit a step that the learner has applied. `applied`: its record, if an earlier start committed it.
        `cursor`: where in the order the next step's problems begin; kept only with `train.refill`.

        Raises `RaypolyError` if the judge could not label too many of the groups, `UsageError` if there is no measure
        such as train.stop.measure.
        """
        train, durability, observers = self._config.train, self._durability, self._observers
        if applied is None:
            applied = await self._applied(step, groups, stats, watch, cursor)
            await durability.commit(applied)
        else:
            ranks = applied.metrics.get(RANKS, 1)
            self._services.learner.check_digest(step, stats.weight_digest, applied.digest, ranks)
            observers.judge_usage.restore_reported(applied.metrics.get("judge_step"))
        # before the step counts as completed: a stop may save a checkpoint of it from then on
        durability.memory.take(applied.metrics)
        durability.memory.keep_objective()
        await durability.seal(step, [replace(t, group=self._stages.encode(t.group)) for t in groups])
        observers.watchdog.step_done()
        durability.checkpoint_writer.check()
        last = step + 1 == train.steps or durability.memory.plateau.ends_by(step + 1)
        if last or (step + 1) % train.checkpoint_every == 0:
            await durability.checkpoint()
        observers.step_done(applied)
        durability.memory.plateau.check(applied.metrics)
        self._watch_unjudged(groups)

    async def _applied(
        self, step: int, groups: Sequence[TrainingGroup], stats: UpdateStats, watch: Stopwatch, cursor: int
    ) -> Applied:
        """The step's record, with its row of metrics."""
        train, observers = self._config.train, self._observers
        row = metrics_row(
            step,
            groups,
            stats,
            watch.waterfall(),
            observers.judge_pause.take_pauses(),
            observers.summary.clip_share(stats.clipped),
            await observers.judge_numbers(self._services.judge),
            self._stages.stages,
        )
        row |= self._weights.difference.row()
        row["off_policy_groups"] = min(self._services.learner.off_policy(step), len(groups))
        if train.refill:
            row |= {"refilled": len(groups) - train.prompts_per_step, CURSOR: cursor}
        if self._config.problems.order == "pass_rate":
            row |= pass_count_row([t.group.problem_id for t in groups], [t.rewards for t in groups])
        if train.ranks > 1:
            row[RANKS] = train.ranks
        return Applied(step, stats.weight_digest, row)

    def _watch_unjudged(self, groups: Sequence[TrainingGroup]) -> None:
        self._groups += len(groups)
        self._unjudged += sum(trained.group.unjudged for trained in groups)
        limit = self._config.judge.max_unjudged
        if self._unjudged > max(1, limit * self._groups):
            raise RaypolyError(
                f"The judge could not label {self._unjudged} of {self._groups} groups, more than judge.max_unjudged="
                f"{limit:g}: look at its answers, then start again with the same command."
            )
