"""Measures the policy: unbiased pass@k and distinct correct strategies on problems that it was not trained on.

Test is measured first and last, for claiming; validation every k steps, for choosing. An evaluation is committed
whole; one that was interrupted is repeated whole, with the same seeds, hence with the same result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import pyarrow as pa
from rich.console import Console

from raypoly import programs
from raypoly.config import Config
from raypoly.errors import TooManySetAside, UsageError
from raypoly.evaluating.evaluation_results import evaluation_results, sample_table
from raypoly.evaluating.judged_groups import joined_labels, judged_at_once, judged_groups
from raypoly.judge.judge_usage import usage_to_json
from raypoly.metrics.problem_counts import ProblemCounts
from raypoly.problems.without_tests import with_tests
from raypoly.programs import Program
from raypoly.reports.tables import ReportTable
from raypoly.run_identity import resolve_run
from raypoly.seeds import derive
from raypoly.store.checked_parquet import encode_table
from raypoly.store.sealed_json import seal
from raypoly.values import UNKNOWN, Draft, Group, Problem, Split
from raypoly.version import __version__
from workflows.liveness.shutdown import Shutdown, run_workflow
from workflows.startup.open_run import OpenRun, open_run
from workflows.step.program_rounds import ProgramRounds
from workflows.step.public_verdicts import public_verdicts
from workflows.step.skipped_groups import skip_reason
from workflows.step.stopwatch import Stopwatch


class Evaluator:
    """Evaluates the weights that the generator has now."""

    def __init__(self, opened: OpenRun) -> None:
        self.opened, self.config = opened, opened.config
        self.journal, self.observers = opened.durability.journal, opened.observers

    async def evaluate_if_due(self, step: int) -> None:
        """Commit whatever evaluation belongs to the weights after `step` steps and is not committed yet."""
        for split in self._due(step):
            if (step, split) not in self.journal.evaluations():
                await self.evaluate(step, split)
                self.observers.evaluation_done(self.journal.evaluations()[step, split])

    def _due(self, step: int) -> list[Split]:
        every = self.config.evaluate.every
        if not every:
            return []
        last = step == self.config.train.steps or self.opened.durability.memory.plateau.ends_by(step)
        splits: list[Split] = ["test"] if last or step == 0 else []
        if last or step % every == 0:
            splits.append("validation")
        return [split for split in splits if with_tests(self.opened.problems.splits[split])]

    async def evaluate(self, step: int, split: Split) -> None:
        """Measure and commit."""
        evaluate, progress = self.config.evaluate, self.observers.progress
        samples = evaluate.samples if split == "test" else evaluate.validation_samples
        payload, table = await measure(self.opened, step, split, samples)
        await self.journal.commit_evaluation(step, split, payload, table)
        # a pause is told to the progress when it ends
        progress.exclude_seconds(payload["seconds"] - sum(pause["seconds"] for pause in payload["pauses"]))
        progress.note(describe(payload))


async def measure(opened: OpenRun, step: int, split: Split, samples: int) -> tuple[dict[str, Any], pa.Table]:
    """An evaluation's results (JSON values), and its table of one row a sample."""
    config, observers = opened.config, opened.observers
    problems = with_tests(opened.problems.splits[split])
    if not problems:
        raise UsageError(f"No problem of {split} has tests that could be run, so there is no pass@k to measure.")
    observers.progress.note(f"Measuring step {step} on {split}: {len(problems)} problems x {samples} samples ...")
    started = time.monotonic()
    weights = await opened.services.learner.digest()
    watch = Stopwatch(lambda stage, groups: observers.progress.stage(stage, groups, len(problems)))
    rounds = _rounds(opened, programs.of_evaluation(config), split, samples)
    async with asyncio.TaskGroup() as tasks:
        flows: dict[int, asyncio.Task[Group]] = {}
        async for solved in rounds.run(dict(enumerate(problems)), {}, ()):
            watch.done("generate")
            slot = solved.slot
            group = solved.group(step, problems[slot].id)
            flows[slot] = tasks.create_task(_pass_stages(opened, group, problems[slot], watch))
    groups = [flows[slot].result() for slot in sorted(flows)]
    set_aside = {group.problem_id: reason for group in groups if (reason := skip_reason(group))}
    if len(set_aside) == len(groups):
        raise TooManySetAside(f"{skip_reason(groups[0])} No tests of the {len(groups)} problems of {split} can be run.")
    usage, at_once = observers.judge_usage, judged_at_once(config)
    payload = {
        "step": step,
        "split": split,
        "samples": samples,
        "problems": len(groups) - len(set_aside),
        "problem_set": opened.problems.hash,
        "weights": weights,
        "raypoly": __version__,
        **evaluation_results(groups, set_aside, _metadata(problems), at_once),
        "seconds": round(time.monotonic() - started, 3),
        "pauses": observers.judge_pause.take_pauses(),
        "judge": usage_to_json(usage.take_unreported()) if config.evaluate.judge and usage.has_usage else None,
    }
    return payload, sample_table(groups, _metadata(problems), at_once)


def _rounds(opened: OpenRun, program: Program, split: Split, samples: int) -> ProgramRounds:
    """What asks a program for an evaluation's samples; seeds depend on nothing but the problem and the place."""
    config, services = opened.config, opened.services

    def seed(_: int, problem: Problem, place: tuple[int | str, ...]) -> int:
        return derive(config.train.seed, "evaluate", split, problem.id, *place)

    async def keep(slot: int, number: int, drafts: Sequence[Draft]) -> None:
        """An evaluation is committed whole."""

    greedy = split == "validation" and config.evaluate.validation_greedy
    score = partial(public_verdicts, services)
    version = services.learner.version
    return ProgramRounds(program, services.generator, config, samples, version, seed, score, keep, greedy)


async def _pass_stages(opened: OpenRun, group: Group, problem: Problem, watch: Stopwatch) -> Group:
    """The group with its verdicts, and its labels where `evaluate.judge` asks for them. An evaluation is committed
    whole, not stage by stage."""
    if skip_reason(group) is None:
        group = await opened.stages.compute(group, problem, opened.stages["score"], watch)
    watch.done("score")
    if skip_reason(group) is not None or not opened.config.evaluate.judge:
        return group
    parts = judged_groups(group, judged_at_once(opened.config))
    judged = [await opened.stages.compute(part, problem, opened.stages["judge"], watch) for part in parts]
    return group.with_parts(judge=joined_labels([part.labels for part in judged]) or UNKNOWN)


def evaluate_run(place: str, config: Config, split: str, samples: int | None) -> None:
    """Measure a run's newest weights once more, into `evaluations/` of the run; training may not be going on."""
    if split not in ("train", "validation", "test"):
        raise UsageError(f"--split {split} is unknown: train, validation or test.")
    chosen = config.model_copy(update={"run": config.run.model_copy(update={"dir": place, "fresh": False})})

    shutdown, tables = Shutdown(config.run.grace_seconds), list[ReportTable]()

    async def work() -> None:
        async with open_run(resolve_run(chosen), shutdown, samples=True) as opened:
            version, store = opened.services.learner.version, opened.durability.store
            await opened.weights.sync()
            payload, table = await measure(opened, version, cast(Split, split), samples or config.evaluate.samples)
            name = f"evaluations/{split}-step-{version:06d}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
            store.commit(f"{name}.json", seal(payload))
            store.commit(f"{name}.parquet", encode_table(table, {}))
            tables.extend(_tables(opened, payload, table))
            opened.observers.progress.note(f"written to {store.place(name)}.json")

    run_workflow(work(), shutdown)
    for each in tables:
        Console().print(each.rich())


def _tables(opened: OpenRun, payload: Mapping[str, Any], table: pa.Table) -> list[ReportTable]:
    from raypoly.evaluating.evaluation_tables import evaluation_tables  # brings scipy, which a training needs not

    counts = ProblemCounts.of(table)
    assert counts is not None, "a sample table has verdicts"
    metadata = _metadata(opened.problems.splits[payload["split"]])
    return evaluation_tables(payload, counts, metadata, f"step {payload['step']}, {payload['split']}")


def _metadata(problems: Sequence[Problem]) -> dict[str, Mapping[str, str]]:
    """By problem id."""
    return {problem.id: problem.metadata for problem in problems}


def describe(payload: Mapping[str, Any]) -> str:
    """One line for a person."""
    curve = payload["pass_at_k"]
    shown = "  ".join(f"pass@{k} {curve[k]:.3f}" for k in ("1", "4", "8", "16", "64") if k in curve)
    strategies = payload["strategies_correct"]
    diversity = f"  strategies in 8 {strategies:.2f}" if strategies is not None else ""
    return f"step {payload['step']}, {payload['split']}: {shown}{diversity}"
