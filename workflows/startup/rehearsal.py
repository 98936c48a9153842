"""Every part of a run tried once, before it is started for real: `raypoly train --rehearse`.

The real config does one step on two problems in a folder that is gone afterwards: actors start, weights go to the
engine and are verified there, responses are sampled, scored and judged, gradients are computed, also of rows at their
limits, and a checkpoint is written and read back. Each part is a line. From what they took follows what the whole run
will take.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from raypoly.config import Config
from raypoly.errors import RaypolyError, RunStopped, UsageError
from raypoly.planning.gpus import chosen
from raypoly.planning.plan_text import refuse_what_does_not_fit
from raypoly.preflight import existing_parent, machine
from raypoly.run_identity import RunDirectory, resolve_run
from raypoly.values import Group, Rollout
from workflows.liveness.shutdown import Shutdown, run_workflow
from workflows.startup.forecast import RehearsalTimes, describe_forecast, forecast
from workflows.startup.open_run import open_run
from workflows.startup.rehearsal_probe import RehearsalFailed, RehearsalProbe
from workflows.step.learner_session import TrainingGroup
from workflows.step.parts import Parts
from workflows.step.stopwatch import Stopwatch
from workflows.train import Training

PROBLEMS = 2
JUDGE_PATIENCE = 60.0
"""Seconds after which a judge that is away has failed the rehearsal."""


def rehearse(config: Config, directory: RunDirectory) -> None:
    """Print a line a part, then the outlook; `directory` is the real run's, and stays as it is.

    Raises `RehearsalFailed` (exit code 1), which says what to do.
    """
    tried, ending = RehearsalProbe(), Shutdown(config.run.grace_seconds)
    device = chosen(None, machine(directory.path).memory)
    try:
        refuse_what_does_not_fit(config, device)
    except UsageError as error:  # a prediction; what follows is the truth
        tried.remark(f"by the plan: {error}")
    beside = existing_parent(directory.path.parent)
    with tempfile.TemporaryDirectory(prefix=".raypoly-rehearsal-", dir=beside, ignore_cleanup_errors=True) as folder:
        small = rehearsal_config(config, Path(folder) / "run")

        async def work() -> None:
            async with open_run(resolve_run(small), ending, tried.part) as parts:
                measured = await Rehearsal(parts, config, tried).run()
                problems: dict[str, int] = {name: len(split) for name, split in parts.problems.splits.items()}
            whole_run = forecast(config, device, measured, problems)
            print(describe_forecast(config, measured, whole_run, datetime.now()), flush=True)

        try:
            run_workflow(work(), ending)
        except (RehearsalFailed, RunStopped):
            raise
        except RaypolyError as error:
            raise RehearsalFailed(f"The rehearsal failed: {error}") from error


def rehearsal_config(config: Config, folder: Path) -> Config:
    """The same run in another folder: one step on two problems, watched and told by nobody, that gives up soon."""
    alone = {"fresh": False, "retries": 0, "tensorboard": False, "wandb_project": None, "on_pause": None}
    one_gold_group = {"canary_every": 0, "canary_groups": 1, "cache_mib": 0}  # a kept answer would prove nothing
    when = "always" if config.judge.when == "sampled" else config.judge.when
    one_step = {"steps": 1, "prompts_per_step": PROBLEMS, "checkpoint_every": 1, "keep_last": 1, "keep_every": None}
    plain = {
        "refill": 0,
        "max_mismatch": None,
    }  # of made-up rows a mismatch would mean nothing; the step's is looked at
    changes: dict[str, dict[str, Any]] = {
        "run": {"dir": str(folder), "max_set_aside": 1.0, **alone},
        "judge": {"when": when, "max_pause": JUDGE_PATIENCE, "max_unjudged": 1.0, **one_gold_group},
        "train": {**one_step, **plain},
        "evaluate": {"every": 0},
    }
    sections = {name: getattr(config, name).model_copy(update=values) for name, values in changes.items()}
    return config.model_copy(update=sections)


class Rehearsal:
    """What is tried once every actor is up."""

    def __init__(self, parts: Parts, config: Config, tried: RehearsalProbe) -> None:
        self.parts, self.config, self.tried = parts, config, tried

    async def run(self) -> RehearsalTimes:
        """Raises `RehearsalFailed`."""
        parts, tried = self.parts, self.tried
        parts.progress.start(1, 0, parts.path)
        if parts.stages.judging or self.config.evaluate.judge:
            await tried.part("judge, a gold group", parts.canary.measure_agreement())
        await tried.part("weights to the engine, verified", parts.publish_weights())
        await tried.part("one step", Training(parts).step(0))
        row = self._row()
        self._check_mismatch(row["mismatch_mean"])
        groups = parts.journal.load_step(0).groups
        longest = [self._at_the_limit(group) for group in groups]
        await self._let_the_engine_sleep()
        await tried.part("update without rows", self._update(1, []))
        await tried.part("gradients of rows at their limits", self._update(2, longest))
        await tried.part("checkpoint, until it is written", parts.saver.wait())
        await tried.part("checkpoint, read back", parts.learning.start())
        await tried.part("weights to the engine once more", parts.publish_weights())
        return self._measured(row, groups, longest)

    async def _let_the_engine_sleep(self) -> None:
        """Where it shares the learner's GPU by sleeping; new weights wake it."""
        await self.tried.part("engine, asleep where it has to be", self.parts.generator.rest())

    def _row(self) -> Mapping[str, Any]:
        applied = self.parts.journal.applied(0)
        assert applied is not None, "the step was committed"
        return applied.metrics

    def _check_mismatch(self, mean: float | None) -> None:
        limit = self.config.train.max_mismatch
        if limit is not None and mean is not None and mean > limit:
            raise RehearsalFailed(
                f"The rehearsal failed: sampler and learner differ by {mean:.3g} a token, above train.max_mismatch="
                f"{limit:g}: raise it, or look at generator.engine (docs/losses.md)."
            )

    def _at_the_limit(self, group: Group) -> TrainingGroup:
        """The group with responses and prompt as long as they may be, and advantages that none is left out for."""
        generator = self.config.generator

        def longest(rollout: Rollout) -> Rollout:
            return replace(
                rollout,
                prompt_tokens=np.resize(rollout.prompt_tokens, generator.max_prompt_tokens),
                tokens=np.resize(rollout.tokens, generator.max_tokens),
                logprobs=np.resize(rollout.logprobs, generator.max_tokens),
            )

        advantages = np.where(np.arange(group.size) % 2, 1.0, -1.0)
        rollouts = tuple(map(longest, group.rollouts))
        return TrainingGroup(replace(group, rollouts=rollouts), advantages, advantages)

    async def _update(self, step: int, groups: Sequence[TrainingGroup]) -> None:
        """An update that nothing else of the run hears of; the checkpoint is of the version before."""

        async def ready(group: TrainingGroup) -> TrainingGroup:
            return group

        await self.parts.learning.update(step, [asyncio.ensure_future(ready(group)) for group in groups], Stopwatch())

    def _measured(
        self, row: Mapping[str, Any], groups: Sequence[Group], longest: Sequence[TrainingGroup]
    ) -> RehearsalTimes:
        seconds, use = self.tried.seconds, row["judge_step"]
        fixed = seconds["update without rows"]
        calls, usd = (0, 0.0) if use is None else (use["calls"], use["cost_usd"])
        unknown = use is None and self.config.judge.name != "structural"
        return RehearsalTimes(
            sampling=row["seconds"]["generate"],
            prompts=len(groups),
            responses=sum(group.size for group in groups),
            response_tokens=row["response_tokens"],
            update=fixed,
            gradients=max(0.0, seconds["gradients of rows at their limits"] - fixed),
            gradient_tokens=sum(len(rollout.tokens) for trained in longest for rollout in trained.group.rollouts),
            hand_over=seconds["weights to the engine once more"],
            judge_call_usd=None if unknown or usd is None else usd / max(1, calls),
            crossing=row["seconds"].get("cross", 0.0),
        )
