"""Measuring the policy: unbiased pass@k and distinct correct strategies on problems that it was not trained on.

Test is measured first and last, for claiming; validation every k steps, for choosing. An evaluation is committed
whole; one that was interrupted is repeated whole, with the same seeds, hence with the same result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa

from raypoly.config import Config
from raypoly.engines import SampleRequest
from raypoly.errors import TooManySetAside, UsageError
from raypoly.judge.judge_usage import usage_to_json
from raypoly.metrics.group_outcomes import GroupOutcomes
from raypoly.metrics.pass_at_k import ProblemOutcome, summarise
from raypoly.problems.without_tests import with_tests
from raypoly.run_identity import resolve_run
from raypoly.seeds import derive
from raypoly.store.checked_parquet import encode_table
from raypoly.store.sealed_json import seal
from raypoly.store.step_records import Record
from raypoly.values import Group, Problem, Split
from workflows.liveness.shutdown import Shutdown, run_workflow
from workflows.startup.open_run import open_run
from workflows.step.parts import Parts
from workflows.step.skipped_groups import skip_reason
from workflows.step.stopwatch import Stopwatch


class Evaluator:
    """Evaluates the weights that the generator has now."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.config = parts, parts.config

    async def evaluate_if_due(self, step: int) -> None:
        """Commit whatever evaluation belongs to the weights after `step` steps and is not committed yet."""
        for split in self._due(step):
            if (step, split) not in self.parts.journal.evaluations():
                await self.evaluate(step, split)
                self.parts.summary.write("running")

    def _due(self, step: int) -> list[Split]:
        every, last = self.config.evaluate.every, self.config.train.steps
        if not every:
            return []
        splits: list[Split] = ["test"] if step in (0, last) else []
        if step % every == 0 or step == last:
            splits.append("validation")
        return [split for split in splits if with_tests(self.parts.problems.splits[split])]

    async def evaluate(self, step: int, split: Split) -> None:
        evaluate = self.config.evaluate
        samples = evaluate.samples if split == "test" else evaluate.validation_samples
        payload, table = await measure(self.parts, step, split, samples)
        await self.parts.journal.commit_evaluation(step, split, payload, table)
        # a pause is told to the progress when it ends
        self.parts.progress.exclude_seconds(payload["seconds"] - sum(pause["seconds"] for pause in payload["pauses"]))
        self.parts.progress.note(describe(payload))


async def measure(parts: Parts, step: int, split: Split, samples: int) -> tuple[dict[str, Any], pa.Table]:
    """What an evaluation came to (JSON values), and its table of one row a sample."""
    problems = with_tests(parts.problems.splits[split])
    if not problems:
        raise UsageError(f"No problem of {split} has tests that could be run, so there is no pass@k to measure.")
    started = time.monotonic()
    greedy = split == "validation" and parts.config.evaluate.validation_greedy
    tokens = await parts.prompt_tokens(problems)
    requests = [
        SampleRequest(
            slot,
            prompt_tokens,
            tuple(derive(parts.config.train.seed, "evaluate", split, problem.id, i) for i in range(samples)),
            greedy=greedy,
        )
        for slot, (problem, prompt_tokens) in enumerate(zip(problems, tokens, strict=True))
    ]
    watch = Stopwatch(lambda stage, groups: parts.progress.stage(stage, groups, len(problems)))
    async with asyncio.TaskGroup() as tasks:
        flows: dict[int, asyncio.Task[Group]] = {}
        async for slot, rollouts in parts.generator.sample(requests):
            watch.done("generate")
            group = Group(step, slot, problems[slot].id, rollouts)
            flows[slot] = tasks.create_task(_scored(parts, group, problems[slot], watch))
    groups = [flows[slot].result() for slot in sorted(flows)]
    sound = [group for group in groups if skip_reason(group) is None]
    if not sound:
        raise TooManySetAside(f"{skip_reason(groups[0])} No tests of the {len(groups)} problems of {split} can be run.")
    payload = {
        "step": step,
        "split": split,
        "samples": samples,
        "problems": len(sound),
        "set_aside": {group.problem_id: reason for group in groups if (reason := skip_reason(group))},
        **summarise([_outcome(group) for group in sound]),
        "seconds": round(time.monotonic() - started, 3),
        "pauses": parts.patience.take_pauses(),
        "judge": usage_to_json(parts.judge_use.take_unreported())
        if parts.config.evaluate.judge and parts.judge_use.has_usage
        else None,
    }
    return payload, _table(groups)


async def _scored(parts: Parts, group: Group, problem: Problem, watch: Stopwatch) -> Group:
    group = await parts.stages.score(group, problem, watch, _keep_nothing, training=False)
    if skip_reason(group):
        return group
    if not parts.config.evaluate.judge:
        return group
    labels = await parts.stages.label(problem, group)
    return replace(group, labels=labels, unjudged=labels is None)


async def _keep_nothing(record: Record) -> None:
    """An evaluation is committed whole, not stage by stage."""


def _outcome(group: Group) -> ProblemOutcome:
    labels = None if group.labels is None else group.labels.strategies
    return GroupOutcomes.of(group.verdicts or (), None).outcome(labels)


def _table(groups: Sequence[Group]) -> pa.Table:
    rows = [
        {
            "problem_id": group.problem_id,
            "rollout": index,
            "text": rollout.text,
            "response_tokens": len(rollout.tokens),
            "finish_reason": rollout.finish_reason,
            "seed": rollout.seed,
            "status": verdict.status,
            "detail": verdict.detail,
            "strategy": verdict.evidence.strategy if verdict.evidence else None,
            "label": None if group.labels is None else int(group.labels.ids[index]),
        }
        for group in groups
        for index, (rollout, verdict) in enumerate(zip(group.rollouts, group.verdicts or (), strict=True))
    ]
    return pa.Table.from_pylist(rows)


def evaluate_run(place: str, config: Config, split: str, samples: int | None) -> None:
    """Measure a run's newest weights once more, into `evaluations/` of the run; training may not be going on."""
    if split not in ("train", "validation", "test"):
        raise UsageError(f"--split {split} is unknown: train, validation or test.")
    chosen = config.model_copy(update={"run": config.run.model_copy(update={"dir": place, "fresh": False})})

    ending = Shutdown(config.run.grace_seconds)

    async def work() -> None:
        async with open_run(resolve_run(chosen), ending) as parts:
            version = parts.learning.version
            await parts.publish_weights()
            payload, table = await measure(parts, version, cast(Split, split), samples or config.evaluate.samples)
            name = f"evaluations/{split}-step-{version:06d}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
            parts.store.commit(f"{name}.json", seal(payload))
            parts.store.commit(f"{name}.parquet", encode_table(table, {}))
            parts.progress.note(describe(payload))
            parts.progress.note(f"written to {parts.store.place(name)}.json")

    run_workflow(work(), ending)


def describe(payload: Mapping[str, Any]) -> str:
    """One line for a person."""
    curve = payload["pass_at_k"]
    shown = "  ".join(f"pass@{k} {curve[k]:.3f}" for k in ("1", "4", "8", "16", "64") if k in curve)
    strategies = payload["strategies_correct"]
    diversity = f"  strategies in 8 {strategies:.2f}" if strategies is not None else ""
    return f"step {payload['step']}, {payload['split']}: {shown}{diversity}"
