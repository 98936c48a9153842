"""Evaluation of a run's policy: pass@k and distinct correct strategies on problems that it was not trained on.

Test is measured first and last, for claiming; validation every k steps, for choosing. An evaluation is committed
whole. An interrupted one is repeated with the same seeds, hence with the same result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import Any, cast

import numpy as np
import pyarrow as pa
from rich.console import Console

from actors.learner import LearnerActor
from raypoly.analysis.evaluation.evaluation_results import (
    Encode,
    answer_votes,
    category_results,
    compared_texts,
    evaluation_results,
    joined_labels,
    judged_at_once,
    judged_groups,
    majority_results,
    sample_table,
    scaffold_results,
)
from raypoly.analysis.metrics.pass_at_k import STRATEGY_DRAWS
from raypoly.analysis.metrics.plan_diversity import SentenceEncoder
from raypoly.analysis.reports.run_table import shown_ks
from raypoly.core import __version__
from raypoly.core.config import Config
from raypoly.core.errors import TooManySetAside, UsageError
from raypoly.core.seeds import derive
from raypoly.core.tables import ReportTable
from raypoly.core.values import UNKNOWN, WITHOUT_TESTS, Draft, Group, Problem, Rollout, Split, TestSuite, Verdict
from raypoly.data.problem_set import with_tests
from raypoly.rollouts.scaffolds import Scaffold
from raypoly.rollouts.scaffolds.run_scaffolds import of_evaluations
from raypoly.run.run_identity import resolve_run
from raypoly.run.store.sealed_files import encode_table, seal
from raypoly.strategies.judge.algorithm_categories import (
    INDEPENDENT,
    Category,
    CategoryAgreement,
    category_of,
    read_labelled_methods,
)
from raypoly.strategies.judge.judge_usage import usage_to_json
from raypoly.verifier.rewards.terms.known_terms import GRADES
from workflows.liveness.shutdown import Shutdown, run_workflow
from workflows.startup.open_run import OpenRun, open_run
from workflows.step.rollouts import conversations_of
from workflows.step.scaffold_rounds import ScaffoldRounds
from workflows.step.stages.built_in import CategoriesStage, signatures
from workflows.step.stages.reward_stage import RewardStage
from workflows.step.stopwatch import Stopwatch
from workflows.step.training_group import REWARD, skip_reason


class Evaluator:
    """Evaluates the weights that the generator has."""

    def __init__(self, opened: OpenRun) -> None:
        self.opened, self.config = opened, opened.config
        self.journal, self.observers = opened.durability.journal, opened.observers

    async def evaluate_if_due(self, step: int) -> None:
        """Commit the evaluations of the weights after `step` steps that are due and not committed."""
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
        return [split for split in splits if _judgeable(self.opened, split)]

    async def evaluate(self, step: int, split: Split) -> None:
        evaluate, progress = self.config.evaluate, self.observers.progress
        samples = evaluate.samples if split == "test" else evaluate.validation_samples
        payload, table = await measure(self.opened, step, split, samples)
        await self.journal.commit_evaluation(step, split, payload, table)
        # a pause is told to the progress when it ends
        progress.exclude_seconds(payload["seconds"] - sum(pause["seconds"] for pause in payload["pauses"]))
        progress.note(describe(payload))


def _judgeable(opened: OpenRun, split: Split) -> Sequence[Problem]:
    """Problems of a split that have a verdict, or an outcome by the run's own reward function."""
    problems = opened.problems.splits[split]
    return problems if opened.environment.decides or _own_reward(opened) is not None else with_tests(problems)


def _own_reward(opened: OpenRun) -> RewardStage | None:
    """The stage of a reward function of the user's, where training asks it."""
    stage = opened.stages[REWARD]
    return stage if isinstance(stage, RewardStage) and stage.used and stage.rewards.outcome.own else None


async def measure(
    opened: OpenRun, step: int, split: Split, samples: int, asked: Mapping[str, Scaffold] | None = None
) -> tuple[dict[str, Any], pa.Table]:
    """(results as JSON values, table with a row for each sample). `asked`: scaffolds by name, the evaluation's own
    first; default: the config's."""
    config, observers = opened.config, opened.observers
    chosen = asked or of_evaluations(config)
    shown = opened.environment.shown_tests
    problems = _judgeable(opened, split)
    if not problems:
        raise UsageError(f"No problem of {split} has tests that could be run, so there is no pass@k to measure.")
    many = f", {len(chosen)} scaffolds" if len(chosen) > 1 else ""
    what = f"Measuring step {step} on {split}: {len(problems)} problems x {samples} samples{many}"
    started = time.monotonic()
    usage, measured, tables = observers.judge_usage, [], []
    asks = _asks_judge(config)
    with observers.progress.waiting(what):
        weights = await opened.services.learner.ask("update", LearnerActor.digest)
        for name, scaffold in chosen.items():
            results, table, sound = await _measured(opened, step, split, samples, problems, scaffold)
            if list(chosen) != ["direct"] or config.evaluate.categories:
                encode = None if name == "direct" else _encoder(opened)
                results |= await asyncio.to_thread(
                    scaffold_results, sound, name, scaffold, samples, config.evaluate.select, encode, config.evaluate.ks
                )
                results |= await _categories(opened, problems, sound, scaffold, samples)
            if asks and opened.services.judge.sleeps:
                await opened.weights.sync()  # after the judge's turn, wakes the engines for what follows
            if len(chosen) > 1:
                table = table.append_column("scaffold", pa.array([name] * table.num_rows, pa.string()))
            measured.append(results)
            tables.append(table)
    first, *others = measured
    payload = {
        "step": step,
        "split": split,
        "samples": samples,
        "problems": len(problems) - len(first["set_aside"]),
        "problem_set": opened.problems.source or opened.problems.hash,
        "weights": weights,
        "raypoly": __version__,
        **first,
        **({"scaffolds": others} if others else {}),
        **({"shown_tests": shown} if shown else {}),
        "seconds": round(time.monotonic() - started, 3),
        "pauses": observers.judge_pause.take_pauses(),
        "judge": usage_to_json(usage.take_unreported()) if asks and usage.has_usage else None,
    }
    return payload, pa.concat_tables(tables)


def _asks_judge(config: Config) -> bool:
    return config.evaluate.judge or config.evaluate.categories is not None


async def _measured(
    opened: OpenRun, step: int, split: Split, samples: int, problems: Sequence[Problem], scaffold: Scaffold
) -> tuple[dict[str, Any], pa.Table, Sequence[Group]]:
    """(results of one scaffold, table, groups that count). Raises `TooManySetAside` if no tests can be run."""
    watch = Stopwatch(lambda stage, groups: opened.observers.progress.stage(stage, groups, len(problems)))
    rounds = _rounds(opened, scaffold, step, split, samples)
    async with asyncio.TaskGroup() as tasks:
        flows: dict[int, asyncio.Task[Group]] = {}
        async for group in rounds.run(dict(enumerate(problems)), {}, ()):
            watch.done("generate")
            flows[group.slot] = tasks.create_task(_pass_stages(opened, group, problems[group.slot], watch))
        if _asks_judge(opened.config) and opened.services.judge.sleeps:
            await opened.services.generator.rest()
    groups = [flows[slot].result() for slot in sorted(flows)]
    set_aside = {group.problem_id: reason for group in groups if (reason := skip_reason(group)) is not None}
    if len(set_aside) == len(groups):
        raise TooManySetAside(f"{skip_reason(groups[0])} No tests of the {len(groups)} problems of {split} can be run.")
    at_once, metadata = judged_at_once(opened.config), _metadata(problems)
    sound = [group for group in groups if group.problem_id not in set_aside]
    results = evaluation_results(groups, set_aside, metadata, at_once, opened.config.evaluate.ks)
    by_id = {problem.id: problem for problem in problems}
    answered = [group for group in sound if by_id[group.problem_id].tests.kind == "answer"]
    if opened.config.evaluate.choose == "majority":
        asking = [signatures(opened.services, group, by_id[group.problem_id]) for group in sound]
        results |= majority_results(sound, await asyncio.gather(*asking))
    elif answered:
        results |= majority_results(answered, list(map(answer_votes, answered)))
    return results, sample_table(groups, metadata, at_once), sound


async def _categories(
    opened: OpenRun, problems: Sequence[Problem], groups: Sequence[Group], scaffold: Scaffold, samples: int
) -> dict[str, Any]:
    """`category_results` by the judge, which first classifies what people labelled; nothing where nobody asks."""
    place, block = opened.config.evaluate.categories, scaffold.block(samples)
    if place is None:
        return {}
    labelled, statements = read_labelled_methods(place), {problem.id: problem.prompt for problem in problems}
    told = await asyncio.gather(*(_classified(opened, each.statement, [[each.method]]) for each in labelled))
    named = [name for own in told for (name,) in own]
    (one, other), gold = zip(*(each.annotators for each in labelled), strict=True), [each.gold for each in labelled]
    agreement = None if None in named else CategoryAgreement.of(one, other, gold, named)
    blocks = compared_texts(groups, scaffold, samples, block if block > 1 else INDEPENDENT)
    pairs = zip(groups, blocks, strict=True)
    found = await asyncio.gather(*(_classified(opened, statements[group.problem_id], own) for group, own in pairs))
    return category_results(list(chain.from_iterable(found)), agreement)


async def _classified(
    opened: OpenRun, statement: str, blocks: Sequence[Sequence[str]]
) -> Sequence[Sequence[Category | None]]:
    """The category of each text, None where the judge gives none; waits while it is away."""
    stage = CategoriesStage(opened.config, opened.stages[GRADES].objective)
    distinct = list(dict.fromkeys(chain.from_iterable(blocks)))
    problem = Problem("to be classified", statement, "", TestSuite("none", ""))
    names: dict[str, Category | None] = {}
    for start in range(0, len(distinct), STRATEGY_DRAWS):
        part = distinct[start : start + STRATEGY_DRAWS]
        rollouts = tuple(map(Rollout.of_text, part))
        group = Group(0, 0, problem.id, rollouts, {"score": (WITHOUT_TESTS,) * len(part)})
        group = await opened.stages.compute(group, problem, stage, Stopwatch())
        if group.knows(stage.name):
            names |= dict(zip(part, map(category_of, group.findings[stage.name]), strict=True))
    return [[names.get(text) for text in block] for block in blocks]


def _encoder(opened: OpenRun) -> Encode | None:
    """The sentence encoder, if it is on this machine; else one note says why it is left out."""
    found = _sentence_encoder()
    if isinstance(found, SentenceEncoder):
        return found.encode
    if not _sentence_encoder.cache_info().hits:
        opened.observers.progress.note(found)
    return None


@cache
def _sentence_encoder() -> SentenceEncoder | str:
    """The encoder, or the reason why there is none."""
    try:
        return SentenceEncoder.open()
    except UsageError as why:
        return str(why)


def _rounds(opened: OpenRun, scaffold: Scaffold, step: int, split: Split, samples: int) -> ScaffoldRounds:
    """Rounds of an evaluation's samples; seeds depend on the problem and the place alone."""
    config, services = opened.config, opened.services

    def seed(_: int, problem: Problem, place: tuple[int | str, ...]) -> int:
        return derive(config.train.seed, "evaluate", split, problem.id, *place)

    async def keep(slot: int, number: int, drafts: Sequence[Draft]) -> None:
        """An evaluation is committed whole."""

    greedy = _is_greedy(config, split)

    talks = conversations_of(config, opened.environment, services)
    return ScaffoldRounds(scaffold, services.generator, config, samples, step, seed, keep, greedy, talks)


def _is_greedy(config: Config, split: str) -> bool:
    return split == "validation" and config.evaluate.validation_greedy


async def _pass_stages(opened: OpenRun, group: Group, problem: Problem, watch: Stopwatch) -> Group:
    """The group with verdicts, and labels if `evaluate.judge` asks for them. No stage is committed by itself."""
    if skip_reason(group) is None:
        group = await opened.stages.compute(group, problem, opened.stages["score"], watch)
        group = await _by_outcome(opened, group, problem, watch)
    watch.done("score")
    if skip_reason(group) is not None or not opened.config.evaluate.judge:
        return group
    parts = judged_groups(group, judged_at_once(opened.config))
    judged = [await opened.stages.compute(part, problem, opened.stages["judge"], watch) for part in parts]
    return group.with_findings(judge=joined_labels([part.labels for part in judged]) or UNKNOWN)


async def _by_outcome(opened: OpenRun, group: Group, problem: Problem, watch: Stopwatch) -> Group:
    """A group without tests, with verdicts by the outcomes of the run's own reward function: all `infra`, which sets
    the problem aside, where one is unknown."""
    reward = _own_reward(opened)
    if problem.tests.kind != "none" or opened.environment.decides or reward is None:
        return group
    group = await opened.stages.compute(group, problem, reward, watch)
    found = group.findings[REWARD]["outcome"] if group.knows(REWARD) else np.array([np.nan])
    worth = [float("nan")] * group.size if np.isnan(found).any() else found.tolist()
    verdicts = tuple(Verdict.of_outcome(outcome, f"reward.name={opened.config.reward.name}") for outcome in worth)
    return group.with_findings(score=verdicts, reward=None)


def evaluate_run(
    place: str, config: Config, split: str, samples: int | None, asked: Mapping[str, Scaffold] | None = None
) -> None:
    """Measure a run's newest weights once more, into its `evaluations/`; nothing may be training it meanwhile.

    `samples`: default, as many as the run's own evaluations. `asked`: as `measure`. Raises `UsageError`.
    """
    if split not in ("train", "validation", "test"):
        raise UsageError(f"--split {split} is unknown: train, validation or test.")
    own = config.evaluate.validation_samples if split == "validation" else config.evaluate.samples
    count = own if samples is None else samples
    if count > 1 and _is_greedy(config, split):
        raise UsageError(
            f"The run has evaluate.validation_greedy=true, which gives the same response {count} times: ask for "
            "--samples 1, or for another --split."
        )
    for scaffold in (asked or {}).values():
        scaffold.check(count)
    chosen = config.model_copy(update={"run": config.run.model_copy(update={"dir": place, "fresh": False})})

    shutdown, tables = Shutdown(config.run.grace_seconds), list[ReportTable]()

    async def work() -> None:
        async with open_run(resolve_run(chosen), shutdown, samples=True) as opened:
            version, store = opened.services.learner.version, opened.durability.store
            await opened.weights.sync()
            payload, table = await measure(opened, version, cast(Split, split), count, asked)
            name = f"evaluations/{split}-step-{version:06d}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
            store.commit(f"{name}.json", seal(payload))
            store.commit(f"{name}.parquet", encode_table(table, {}))
            tables.extend(_tables(opened, payload, table))
            opened.observers.progress.note(f"written to {store.place(name)}.json")

    run_workflow(work(), shutdown)
    for each in tables:
        Console().print(each)


def _tables(opened: OpenRun, payload: Mapping[str, Any], table: pa.Table) -> list[ReportTable]:
    from raypoly.analysis.evaluation.evaluation_tables import (
        evaluation_tables,  # brings scipy, which a training needs not
    )

    metadata = _metadata(opened.problems.splits[payload["split"]])
    return evaluation_tables(payload, table, metadata, f"step {payload['step']}, {payload['split']}")


def _metadata(problems: Sequence[Problem]) -> dict[str, Mapping[str, str]]:
    return {problem.id: problem.metadata for problem in problems}


def describe(payload: Mapping[str, Any]) -> str:
    """One line for a log."""
    curve = payload["pass_at_k"]
    shown = "  ".join(f"pass@{k} {curve[k]:.3f}" for k in shown_ks([curve]))
    strategies = payload["strategies_correct"]
    diversity = f"  strategies in 8 {strategies:.2f}" if strategies is not None else ""
    return f"step {payload['step']}, {payload['split']}: {shown}{diversity}"
