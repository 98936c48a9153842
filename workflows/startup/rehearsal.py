"""Rehearsal of a run: `raypoly train --rehearse` tries every part once, before the real start.

The real config does one step in a place of its own beside the run. Weights are verified in the engine, gradients are
computed for rows at their limits too, a checkpoint is written and read back. Each part prints a line. The step's
seconds give a forecast of the whole run.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
import uuid
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError, RunStopped, UsageError
from raypoly.core.text import duration, format_bytes
from raypoly.core.values import Group, Rollout
from raypoly.data.problem_set import count_measured
from raypoly.planning.cost import describe_forecast, forecast_judge, run_seconds
from raypoly.planning.devices import Device, MemoryPeak, choose_device, existing_parent, layout_of, this_machine
from raypoly.planning.dry_run import refuse_unfit
from raypoly.rollouts.scaffolds.run_scaffolds import is_sampled
from raypoly.run.crash import describe_error, root_cause
from raypoly.run.run_identity import RunDirectory, resolve_run, storage_options
from raypoly.run.store import open_store
from workflows.liveness.shutdown import Shutdown, run_workflow
from workflows.startup.open_run import OpenRun, open_run
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import TrainingGroup
from workflows.train import Training

T = TypeVar("T")

# Groups whose rows are stretched to their limits. Micro-batches are cut by tokens, so more need no more memory.
_LONGEST = 2
_JUDGE_SECONDS = 60.0  # seconds without the judge after which the rehearsal has failed
_WIDTH = 36
_PREFIX = ".raypoly-rehearsal-"
_MEMORY = (
    "lower train.token_budget or generator.gpu_memory_fraction, or set train.activation_checkpointing=layers; "
    "`raypoly train --dry-run` shows memory by part"
)
_ADVICE = {  # by the first word of a part's name, for errors that say no way out themselves
    "engine": "its last words above say more; generator.engine=transformers shows whether it is vLLM",
    "learner": "`raypoly train --dry-run` shows what it needs by part",
    "sandbox": "docs/verifier.md says what it needs of a machine",
    "judge": "docs/judge.md says how a judge is reached",
    "checkpoint": "see that the disk under run.dir has room (`raypoly train --dry-run` says how much)",
}


class RehearsalFailed(RaypolyError):
    """A part of the run does not work on this machine."""


async def try_part(name: str, work: Awaitable[T]) -> T:
    """The result of `work`, and a line: its time and memory in use, or why it failed. Raises `RehearsalFailed`."""
    started = time.monotonic()
    with MemoryPeak() as peak:
        try:
            done = await work
        except Exception as error:
            print(f"{name:{_WIDTH}} FAILED {time.monotonic() - started:8.1f} s", flush=True)
            raise RehearsalFailed(f"The rehearsal failed at `{name}`: {_why(name, error)}") from error
    gpu = "" if peak.gpu is None else f"GPU {format_bytes(peak.gpu)}, "
    seconds = time.monotonic() - started
    print(f"{name:{_WIDTH}} ok     {seconds:8.1f} s   in use: {gpu}machine {format_bytes(peak.host)}", flush=True)
    return done


def _why(name: str, error: BaseException) -> str:
    first = root_cause(error)
    if isinstance(first, RaypolyError):
        return str(first)
    said = describe_error(error).rstrip(".")
    if "out of memory" in said.lower():
        return f"{said}: {_MEMORY}."
    advice = _ADVICE.get(name.replace(",", " ").split()[0])
    return f"{said}: {advice}." if advice else f"{said}."


def rehearse(config: Config, directory: RunDirectory) -> None:
    """Print a line for each part, then the forecast. `directory` is the real run's, and is not touched.

    Raises `RehearsalFailed` (exit code 1), which says what to do.
    """
    shutdown = Shutdown(config.run.grace_seconds)
    device = choose_device(None, this_machine(directory.path).memory)
    try:
        refuse_unfit(config, device)
    except UsageError as error:  # a prediction, which the rehearsal tests
        print(f"Note: by the plan: {error}", flush=True)
    with _place_beside(directory) as place:
        small = rehearsal_config(config, place)

        async def work() -> None:
            async with open_run(resolve_run(small), shutdown, try_part, is_sampled(config), config) as opened:
                row = await Rehearsal(opened, config).run()
                problems = count_measured(opened.problems, config.reward.name)
            for line in _forecast(config, device, row, problems):
                print(line, flush=True)

        try:
            run_workflow(work(), shutdown)
        except (RehearsalFailed, RunStopped):
            raise
        except RaypolyError as error:
            raise RehearsalFailed(f"The rehearsal failed: {error}") from error


@contextmanager
def _place_beside(directory: RunDirectory) -> Iterator[str]:
    """A `run.dir` that the real run's machines see too; nothing of it is left."""
    location, options = directory.location, storage_options(directory.config)
    if location.folder is not None:
        above = existing_parent(location.folder.parent)
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=above, ignore_cleanup_errors=True) as folder:
            yield str(Path(folder) / "run")
        return
    beside = location.sibling(f"{_PREFIX}{uuid.uuid4().hex}")
    try:
        yield str(beside)
    finally:
        store = open_store(beside, options)
        for key in store.list():
            store.delete(key)
        shutil.rmtree(store.workspace, ignore_errors=True)


def rehearsal_config(config: Config, place: str) -> Config:
    """The same run in another place: one step, without sinks, which gives up soon."""
    alone = {"fresh": False, "retries": 0, "tensorboard": False, "wandb_project": None, "on_pause": None}
    one_gold_group = {"canary_every": 0, "canary_groups": 1, "cache_mib": 0}  # a kept answer would prove nothing
    when = "always" if config.judge.when == "sampled" else config.judge.when
    one_step = {"steps": 1, "checkpoint_every": 1, "keep_last": 1, "keep_every": None}
    # a mismatch of made-up rows would mean nothing; the step's own is checked
    plain = {"refill": 0, "max_mismatch": None}
    changes: dict[str, dict[str, Any]] = {
        "run": {"dir": place, "max_set_aside": 1.0, **alone},
        "judge": {"when": when, "max_pause": _JUDGE_SECONDS, "max_unjudged": 1.0, **one_gold_group},
        "train": {**one_step, **plain},
        "evaluate": {"every": 0},
    }
    sections = {name: getattr(config, name).model_copy(update=values) for name, values in changes.items()}
    return config.model_copy(update=sections)


class Rehearsal:
    """The parts that are tried after every actor has started."""

    def __init__(self, opened: OpenRun, config: Config) -> None:
        self.opened, self.config = opened, config

    async def run(self) -> Mapping[str, Any]:
        """The step's row of metrics. Raises `RehearsalFailed`."""
        opened = self.opened
        journal, services = opened.durability.journal, opened.services
        opened.observers.progress.start(1, 0)
        if opened.stages.runs("judge") or self.config.evaluate.judge:
            await try_part("judge, a gold group", opened.observers.judge_drift.measure_agreement())
        await try_part("weights to the engine, verified", opened.weights.sync())
        await try_part("one step", Training(opened).step(0))
        applied = journal.applied(0)
        assert applied is not None, "the step was committed"
        row = applied.metrics
        self._check_mismatch(row["mismatch_mean"])
        longest = [self._at_the_limit(group) for group in journal.load_step(0).groups[:_LONGEST]]
        # where the engine shares the learner's GPU by sleeping; new weights wake it
        await try_part("engine, asleep where it has to be", services.generator.rest())
        await try_part("update without rows", self._update(1, []))
        await try_part("gradients of rows at their limits", self._update(2, longest))
        await try_part("checkpoint, until it is written", self._checkpoint())
        await try_part("checkpoint, read back", services.learner.start())
        await try_part("weights to the engine once more", opened.weights.sync())
        await try_part("finished model, written", opened.durability.export())
        return row

    def _check_mismatch(self, mean: float | None) -> None:
        limit = self.config.train.max_mismatch
        if limit is not None and mean is not None and mean > limit:
            raise RehearsalFailed(
                f"The rehearsal failed: sampler and learner differ by {mean:.3g} a token, above train.max_mismatch="
                f"{limit:g}: raise it, or look at generator.engine (docs/losses.md)."
            )

    def _at_the_limit(self, group: Group) -> TrainingGroup:
        """The group with prompt and responses of the greatest length, and advantages that leave no row out."""
        generator = self.config.generator
        size = generator.longest_row - generator.max_prompt_tokens

        def longest(rollout: Rollout) -> Rollout:
            return replace(
                rollout,
                prompt_tokens=np.resize(rollout.prompt_tokens, generator.max_prompt_tokens),
                tokens=np.resize(rollout.own(rollout.tokens), size),
                logprobs=np.resize(rollout.own(rollout.logprobs), size),
                mask=np.arange(size) < generator.max_tokens if size > generator.max_tokens else None,
                turns=(),
            )

        advantages = np.where(np.arange(group.size) % 2, 1.0, -1.0)
        rollouts = tuple(map(longest, group.rollouts))
        return TrainingGroup(replace(group, rollouts=rollouts), advantages, advantages)

    async def _checkpoint(self) -> None:
        writer = self.opened.durability.checkpoint_writer
        await writer.wait()
        if writer.saved_step is None:  # a run goes on without; its note above says why
            raise RaypolyError(
                "The learner was lost while it wrote the checkpoint, usually because the machine's memory was full: "
                "`raypoly train --dry-run` shows how much it needs."
            )

    async def _update(self, step: int, groups: Sequence[TrainingGroup]) -> None:
        """An update that only the learner sees; the checkpoint holds the version before."""

        async def ready(group: TrainingGroup) -> TrainingGroup:
            return group

        learner = self.opened.services.learner
        await learner.update(step, [asyncio.ensure_future(ready(group)) for group in groups], Stopwatch())


def _forecast(config: Config, device: Device, row: Mapping[str, Any], problems: Mapping[str, int]) -> Iterator[str]:
    rollouts, use = config.train.prompts_per_step * config.train.rollouts, row["judge_step"]
    step, sample = row["seconds"]["total"], row["seconds"]["generate"] / rollouts
    length = row["response_tokens"] / rollouts
    yield f"the step took {duration(step)}, with responses of {length:,.0f} tokens; longer ones take longer"
    if config.train.ahead:
        yield "its sampling and its learning hide behind each other with train.ahead=1: the run takes less than this"
    asked, usd = forecast_judge(config).groups * config.judge.votes, None
    if config.judge.name == "structural" or not asked:
        usd = 0.0
    elif use is not None and use["cost_usd"] is not None:
        usd = asked * use["cost_usd"] / max(1, use["calls"])
    seconds = run_seconds(config, step, sample, problems)
    yield from describe_forecast(config, layout_of(config, device).gpus, seconds, usd, datetime.now())
