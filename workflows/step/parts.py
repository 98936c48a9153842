"""What a run works with, and what is done with several of its parts at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from ray.exceptions import RayError

from actors.calls import CallContext
from actors.generator import Generator
from actors.judge import JudgeClient
from raypoly.config import Config
from raypoly.errors import RaypolyError, UsageError
from raypoly.judge.judge_usage import usage_to_json
from raypoly.metrics.sinks import Sinks
from raypoly.objectives import Objective
from raypoly.policy.update_stats import UpdateStats
from raypoly.problems import ProblemSet
from raypoly.problems.pass_rates import PassRates, pass_count_row
from raypoly.store import Store
from raypoly.store.step_records import Applied, Record
from raypoly.values import Int32, Problem
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.journal import Journal
from workflows.liveness.judge_drift import JudgeDriftMonitor
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.liveness.watchdog import STORAGE, Watchdog
from workflows.observers.progress import Progress
from workflows.observers.ray_metrics import RayMetrics
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.observers.summary import Summary
from workflows.step.group_stages import Stages
from workflows.step.learner_session import RANKS, LearnerSession, TrainingGroup
from workflows.step.skipped_groups import SkippedGroups
from workflows.step.step_metrics import JudgeNumbers, metrics_row
from workflows.step.stopwatch import Stopwatch
from workflows.step.weight_sync import verify_weights

OBJECTIVE_STATE = "objective.json"
ORDER_STATE = "order.json"
"""With `train.refill`: where the next step's problems begin."""
PLACE = "problems_taken"
"""In a step's row, with `train.refill`: the same."""
PROBE_TOKENS = 100
"""Tokens of the prompt that weight updates are verified with: more than three KV blocks of 32."""


@dataclass
class Parts:
    """What a run works with."""

    path: Path
    config: Config
    problems: ProblemSet
    tokenizer_files: Mapping[str, bytes]
    objective: Objective
    store: Store
    journal: Journal
    saver: CheckpointWriter
    generator: Generator
    learning: LearnerSession
    judge: JudgeClient
    judge_use: RunJudgeUsage
    canary: JudgeDriftMonitor
    stages: Stages
    patience: JudgeOutagePause
    progress: Progress
    sinks: Sinks
    summary: Summary
    gauges: RayMetrics
    care: CallContext
    aside: SkippedGroups
    watchdog: Watchdog
    unjudged: int = 0
    groups: int = 0
    pretrained: dict[str, bytes] = field(default_factory=dict)
    """What makes a checkpoint's folder a Hugging Face one; the same at every step."""
    probe: Int32 | None = None
    """What weight updates are verified with, once it was asked for."""
    place: int = 0
    """With `train.refill`: where in the order the problems of the next step begin."""
    pass_rates: PassRates = field(default_factory=PassRates)
    """What the completed steps say of each problem; empty where the order does not depend on it."""
    remembered: bytes = b"{}"
    """The objective's memory after the last completed step: what is under way comes again whole after a resume."""

    async def prompt_tokens(self, problems: Sequence[Problem], prompts: Sequence[str] = ()) -> list[Int32]:
        """Each problem's prompt, int32 [P], or those that its objective has for it. Raises `UsageError` where one is
        longer than the config allows."""
        encoded = await self.generator.encode(prompts or [problem.prompt for problem in problems])
        limit = self.config.generator.max_prompt_tokens
        added = f" with what objective.name={self.config.objective.name} adds to it" if prompts else ""
        for problem, tokens in zip(problems, encoded, strict=True):
            if not 0 < len(tokens) <= limit:
                raise UsageError(
                    f"The prompt of {problem.id} has {len(tokens)} tokens{added}, generator.max_prompt_tokens is "
                    f"{limit}: raise it, or set problems.over_long to drop or cut."
                )
        return encoded

    async def probe_tokens(self) -> Int32:
        """A fixed prompt: the first training prompts, end to end. Raises as `prompt_tokens`."""
        if self.probe is None:
            limit = min(PROBE_TOKENS, self.config.generator.max_prompt_tokens)
            first = await self.prompt_tokens(self.problems.splits["train"][:limit])
            self.probe = np.resize(np.concatenate(first), limit)
        return self.probe

    async def commit(self, record: Record) -> None:
        """Return when the record is durable."""
        with self.care.in_flight.waiting("commit", STORAGE):
            await self.journal.commit(record)
        self.care.retries.progress()

    async def publish_weights(self) -> None:
        """The learner's weights to the generator, and the proof that they arrived."""
        await self.generator.update_weights(self.learning, self.learning.version)
        await verify_weights(self.generator, self.learning, await self.probe_tokens(), self.config)

    async def complete(
        self,
        step: int,
        groups: Sequence[TrainingGroup],
        stats: UpdateStats,
        applied: Applied | None,
        watch: Stopwatch,
        place: int = 0,
    ) -> None:
        """Commit an applied step: its row, then its rollout file, and every so often a checkpoint.

        `place`: where in the order the next step's problems begin; kept with `train.refill` alone.
        """
        if applied is None:
            row = metrics_row(
                step,
                groups,
                stats,
                watch.waterfall(),
                self.patience.take_pauses(),
                self.summary.clip_share(stats.clipped),
                await self.judge_numbers(),
            )
            row["off_policy_groups"] = min(self.learning.off_policy(step), len(groups))
            if self.config.train.refill:
                row |= {"refilled": len(groups) - self.config.train.prompts_per_step, PLACE: place}
            if self.config.problems.order == "pass_rate":
                row |= pass_count_row([t.group.problem_id for t in groups], [t.rewards for t in groups])
            if self.config.train.ranks > 1:
                row[RANKS] = self.config.train.ranks
            applied = Applied(step, stats.weight_digest, row)
            await self.commit(applied)
        else:
            self.learning.check_digest(step, stats.weight_digest, applied.digest, applied.metrics.get(RANKS, 1))
            self.judge_use.restore_reported(applied.metrics.get("judge_step"))
        with self.care.in_flight.waiting("commit", STORAGE):
            await self.journal.seal_step(
                step, [t.group for t in groups], [t.rewards for t in groups], [t.advantages for t in groups]
            )
        self.watchdog.step_done()
        self.place = applied.metrics.get(PLACE, 0)
        self.pass_rates.take(applied.metrics)
        self.remember()
        self.saver.check()
        if (step + 1) % self.config.train.checkpoint_every == 0 or step + 1 == self.config.train.steps:
            await self.checkpoint()
        self.record(applied)
        self.gauges.log(applied.metrics)
        self.progress.step(applied.metrics)
        self._watch_unjudged(groups)

    async def judge_numbers(self) -> JudgeNumbers:
        """What the row of a step says of the judge; nothing is said twice."""
        agreement, totals = self.canary.take_agreement(), await self.judge.stats()
        use = self.judge_use.take_unreported() if totals or self.judge_use.has_usage else None
        a_step, to_end = (None, None) if use is None else self.summary.judge_usd(usage_to_json(use)["cost_usd"])
        return JudgeNumbers(totals, use, a_step, to_end, agreement)

    def remember(self) -> None:
        """Take a copy of the objective's memory for checkpoints of this version of the weights."""
        self.remembered = json.dumps(self.objective.state_dict()).encode()

    async def checkpoint(self) -> None:
        """Return when a copy of this version is taken, of weights and objective alike; it is written meanwhile."""
        if not self.pretrained:
            self.pretrained = {**await self.learning.pretrained_config(), **self.tokenizer_files}
        files = {**self.pretrained, OBJECTIVE_STATE: self.remembered}
        if self.config.train.refill:
            files[ORDER_STATE] = json.dumps({"place": self.place}).encode()
        await self.saver.begin(self.learning.version, self.learning.copy, files)

    async def stop_early(self, seconds: float) -> None:
        """Commit what is under way, then save a checkpoint of a version that is complete, where there is time."""
        try:
            async with asyncio.timeout(seconds):
                await self.journal.flush()
                version = self.learning.version
                unsaved = version - 1 in self.journal.completed_steps() and self.saver.saved_step != version
                # the actor may be a step ahead of what was committed
                if unsaved and await self.learning.applied() == version:
                    self.progress.note(f"Saving a checkpoint after step {version} ...")
                    await self.checkpoint()
                await self.saver.wait()
        except (TimeoutError, RaypolyError, RayError) as error:
            self.progress.note(f"No last checkpoint ({type(error).__name__}): the steps since are replayed.")

    def record(self, applied: Applied) -> None:
        """Tell whoever keeps numbers of a step that is committed; a step that they have is not taken twice."""
        self.sinks.log(applied.metrics)
        self.summary.add(applied.metrics)

    async def finish(self) -> None:
        """Export the final weights as a Hugging Face folder, and say that the run is done."""
        await self.saver.wait()
        if self.learning.version and self.saver.saved_step != self.learning.version:  # none, or lost with the learner
            await self.checkpoint()
            await self.saver.wait()
        for name, data in {**await self.learning.pretrained(), **self.tokenizer_files}.items():
            self.store.put_mutable(f"model/{name}", data)
        self.summary.write("finished")

    def _watch_unjudged(self, groups: Sequence[TrainingGroup]) -> None:
        self.groups += len(groups)
        self.unjudged += sum(trained.group.unjudged for trained in groups)
        limit = self.config.judge.max_unjudged
        if self.unjudged > max(1, limit * self.groups):
            raise RaypolyError(
                f"The judge could not label {self.unjudged} of {self.groups} groups, more than judge.max_unjudged="
                f"{limit:g}: look at its answers, then start again with the same command."
            )
