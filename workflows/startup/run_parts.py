"""The parts of a run: those that its config names, built once, and the actors that start for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self

from actors.calls import CallContext, InFlightCalls, Retries
from actors.generator import Generator, TokenizerOnly
from actors.judge import JudgeClient
from actors.learner import LearnerGroup
from actors.model_files import ModelFiles
from actors.reward_workers import RewardWorkers
from actors.scorer_pool import ScorerPool
from actors.stage_model import StageModelClient
from raypoly.algorithms import losses, objectives
from raypoly.algorithms.group_stage import GroupStage, StageModel
from raypoly.algorithms.losses import Loss
from raypoly.algorithms.objectives import Objective
from raypoly.core.config import Config
from raypoly.data import ProblemSet
from raypoly.data.problem_set import with_tests
from raypoly.planning.preflight import asks_judge
from raypoly.rollouts import environments, scaffolds
from raypoly.rollouts.environments import Environment
from raypoly.rollouts.scaffolds import Scaffold
from raypoly.run.run_identity import RunDirectory
from raypoly.run.store.shards import RunWitness
from raypoly.strategies.judge import in_engine
from raypoly.verifier.rewards import Rewards
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.journal import Journal
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.startup.ray_cluster import actor_options, scorer_options
from workflows.startup.resources import ActorResources
from workflows.startup.starting_model import with_copy_for_other_nodes
from workflows.step.learner_session import LearnerSession
from workflows.step.services import Services
from workflows.step.stages import build_stages
from workflows.step.stages.reward_stage import RewardStage
from workflows.step.stages.token_stages import TeacherLogprobsStage
from workflows.step.training_group import SkippedGroups, UpdateRows


@dataclass(frozen=True)
class NamedParts:
    """The parts that a config names, which all else is handed."""

    objective: Objective
    loss: Loss
    scaffold: Scaffold
    environment: Environment
    rewards: Rewards
    stages: Sequence[GroupStage]

    @classmethod
    def build(cls, config: Config, trains: bool = True) -> Self:
        """Raises `UsageError` for a part that is missing, or that does not go with the others. `trains`: not only
        evaluates, which asks no teacher."""
        objective = objectives.of_run(config)
        stages = build_stages(config, objective)
        for stage in stages:
            if stage.used and (trains or not stage.gives_credit):
                _ = stage.asked_model  # raises here, before the run's folder holds anything
        (reward,) = [stage for stage in stages if isinstance(stage, RewardStage)]
        asking = scaffolds.of_run(config), environments.of_run(config)
        return cls(objective, losses.of_run(config), *asking, reward.rewards, stages)

    @property
    def on_learner_device(self) -> Sequence[str]:
        """The stages that ask the learner's device."""
        return [stage.name for stage in self.stages if stage.used and stage.device != "free"]

    async def check_student(self, model: ModelFiles) -> None:
        """Raise `UsageError` where the run has a teacher of another tokenizer than the starting model's."""
        for stage in self.stages:
            if isinstance(stage, TeacherLogprobsStage) and stage.used:
                await asyncio.to_thread(stage.check_student, model.path)


@dataclass(frozen=True)
class StartedActors:
    """Which actors start beside the learner."""

    samples: bool
    scoring: bool
    judging: bool
    judge_in_engine: bool
    rewarding: bool
    """Whether functions or terms of the user's own run beside the step."""
    models: Mapping[str, StageModel]
    """Those that stages of the run ask, by stage."""

    @classmethod
    def of(
        cls, config: Config, stages: Sequence[GroupStage], problem_set: ProblemSet, samples: bool, trains: bool
    ) -> Self:
        used = {stage.name for stage in stages if stage.used}
        judging = asks_judge(config) if samples else "judge" in used
        asking = [stage for stage in stages if stage.used and (trains or not stage.gives_credit)]
        return cls(
            samples,
            scoring=samples or bool(config.stages.own or with_tests(problem_set.splits["train"])),
            judging=judging,
            judge_in_engine=judging and in_engine(config.judge),
            rewarding=any(isinstance(stage, RewardStage) and stage.used and stage.rewards.own for stage in stages),
            models={stage.name: model for stage in asking if (model := stage.asked_model) is not None},
        )

    def describe(self, engine: str) -> str:
        """The actors, for a person. `engine`: generator.engine."""
        started = {
            "learner": True,
            "engine": self.samples,
            **dict.fromkeys(self.models, True),
            "scorers": self.scoring,
            "judge": self.judging,
            "reward functions": self.rewarding,
        }
        *first, last = [name for name, starts in started.items() if starts]
        what = f"{', '.join(first)} and {last}" if first else last
        return f"{what} ({engine})" if self.samples else what


def build_services(
    stack: AsyncExitStack,
    directory: RunDirectory,
    parts: NamedParts,
    started: StartedActors,
    usage: RunJudgeUsage,
    model: ModelFiles,
    journal: Journal,
    writer: CheckpointWriter,
    places: ActorResources,
    witness: RunWitness,
    note: Callable[[str], None],
) -> Services:
    """The actors' clients. The stack stops the actors, which are not started yet."""
    config = directory.config
    context = CallContext(Retries(config.run.retries, note), InFlightCalls())
    stack.push_async_callback(usage.close)
    judge = JudgeClient(
        config.judge,
        places.stage_model if started.judge_in_engine else actor_options(),
        run=directory.uri,
        spent=lambda: usage.spent_usd,
        on_use=usage.add,
        context=context,
        sleeps=started.judge_in_engine and places.placement.sleeps,
    )
    all_tests = config.scorer.all_tests or config.reward.runs_all_tests
    scorer = config.scorer.model_copy(update={"all_tests": all_tests})
    scorers = ScorerPool(scorer, scorer_options(config.scorer, places.cpus), context=context)
    generator = (
        Generator(config, model, places.engine, context, places.placement)
        if started.samples
        else TokenizerOnly(config, model)
    )
    rows = UpdateRows(config, parts.objective, parts.loss, parts.scaffold)
    learners = LearnerGroup(config, model, places.rank, context, rows.temperature, witness)
    learner = LearnerSession(config.train, rows, learners, journal, writer, note, context)
    rewards = RewardWorkers(config, parts.rewards, actor_options(), context)
    models = {}
    for stage, model_of in started.models.items():
        files = with_copy_for_other_nodes(ModelFiles(model_of.folder, hub=model_of.hub))
        models[stage] = StageModelClient(stage, files, model_of, places.stage_model, context)
        stack.callback(models[stage].stop)
    for service in (judge, scorers, generator, learner, rewards):
        stack.callback(service.stop)
    for stage_of_run in parts.stages:
        stack.callback(stage_of_run.close)
    skipped = SkippedGroups(config.run.max_set_aside, note)
    return Services(generator, learner, scorers, judge, skipped, context, rewards, models)
