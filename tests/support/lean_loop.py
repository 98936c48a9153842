"""The default training in one process: the product's objective, learner, engine, sandboxes and labels, without Ray.

    config = load(None, ["train.seed=5", "objective.name=grpo"])
    run = LeanLoop(config, VerdictMemory(config, Path("verdicts.db")))
    for _ in range(80):
        run.step()
    run.evaluate("test")["pass_at_k"]

It has no journal, no other process but the sandboxes', and no second copy of a verdict: what takes minutes by
`raypoly train` takes some two CPU seconds a step. With `generator.engine=transformers` in float32 on the same threads
the product has the same weights after each step, bit for bit (tests/workflows/test_lean_loop.py).
"""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from actors.engine_actor import GeneratorActor, Sampled
from actors.model_files import ModelFiles
from raypoly.algorithms import losses, objectives
from raypoly.algorithms.objectives.objective import needed_stages
from raypoly.analysis.evaluation.evaluation_results import evaluation_results
from raypoly.core.caches import FolderCache, cache_root
from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError
from raypoly.core.seeds import derive
from raypoly.core.values import UNKNOWN, Draft, Group, Problem, Rollout, Split, Verdict
from raypoly.data import ProblemSet, build_problem_set
from raypoly.data.problem_order import PassRates, build_problem_order
from raypoly.data.problem_set import with_tests
from raypoly.data.puzzles import puzzle_of
from raypoly.learner.policy_learner import PolicyLearner
from raypoly.learner.tiny_model import SupervisedTrainer, build_model, save_folder
from raypoly.learner.update_stats import UpdateStats
from raypoly.rollouts import scaffolds
from raypoly.rollouts.engines import SampleRequest
from raypoly.rollouts.engines.transfer import Parcel
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.strategies.judge.structural import structural_labels
from raypoly.verifier.code_extraction import program_in
from raypoly.verifier.local_pool import LocalPool
from raypoly.verifier.sandbox.prepared_suite import Case
from tests.support.timed_services import RewardsHere
from workflows.startup.warm_start import WARM_START_THREADS, warm_start_key
from workflows.startup.warm_start_training import tokenizer_and_recipe
from workflows.step.advantages import AdvantageEstimator
from workflows.step.scaffold_rounds import ScaffoldRounds
from workflows.step.stages.reward_stage import RewardStage
from workflows.step.training_group import TrainingGroup, UpdateRows


class PassedEvidence(StrategyEvidence):
    """Runs no wrong program again: an evaluation counts the strategies of right ones alone."""

    def run_question(self, problem: Problem, code: str, cases: Sequence[Case], passed: bool) -> tuple[Any, ...] | None:
        return super().run_question(problem, code, cases, passed) if passed else None


class VerdictMemory:
    """Verdicts by problem and program, in a file that several runs share: what ran once runs no more.

    Two objects with the same `evidence` may share a file.
    """

    def __init__(self, config: Config, place: Path, evidence: StrategyEvidence | None = None) -> None:
        self._known = sqlite3.connect(place, timeout=60)
        self._known.execute("PRAGMA journal_mode=WAL")
        self._known.execute(
            "CREATE TABLE IF NOT EXISTS verdicts (problem, program, verdict, PRIMARY KEY (problem, program))"
        )
        self.ran = 0
        """Programs that this object ran."""
        self._pool = LocalPool(config.scorer.model_copy(update={"workers": 1}), evidence or StrategyEvidence())

    def verdicts(self, problem: Problem, rollouts: Sequence[Rollout]) -> list[Verdict]:
        """Raises `RaypolyError` where one is unknown: a study has no use for what an outage left."""
        programs = [program_in(problem, rollout.text) or "" for rollout in rollouts]
        name = f"{problem.id} {problem.tests.source}"
        found = {program: self._of(name, program) for program in dict.fromkeys(programs)}
        missing = [program for program, verdict in found.items() if verdict is None]
        pairs = [(problem, program or None) for program in missing]
        for program, verdict in zip(missing, self._pool.score(pairs), strict=True):
            if verdict.status == "infra":
                raise RaypolyError(f"no verdict of a program for {problem.id}: {verdict.detail}")
            found[program] = verdict
            self.ran += 1
            row = (name, program, pickle.dumps(verdict))
            self._known.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?)", row)
        self._known.commit()
        return [verdict for program in programs if (verdict := found[program]) is not None]

    def _of(self, problem: str, program: str) -> Verdict | None:
        sql = "SELECT verdict FROM verdicts WHERE problem = ? AND program = ?"
        row = self._known.execute(sql, (problem, program)).fetchone()
        return None if row is None else pickle.loads(row[0])

    def close(self) -> None:
        self._pool.close()
        self._known.close()


class LeanLoop:
    """Owns an engine and a learner. `model`: a folder; by default the warm start of the config."""

    def __init__(self, config: Config, memory: VerdictMemory, model: Path | None = None) -> None:
        self.config, self.memory = config, memory
        self.problems = build_problem_set(config.problems)
        self.model = model or warm_start(config, self.problems)
        self.objective, self.loss = objectives.of_run(config), losses.of_run(config)
        scaffold = scaffolds.of_run(config)
        self.rows = UpdateRows(config, self.objective, self.loss, scaffold)
        self._reward = RewardStage(config, self.objective)
        self.estimator = AdvantageEstimator(self.objective, scaffold, self._reward.rewards)
        self.learner = PolicyLearner(self.model, config.train, self.loss, self.rows.temperature, config.model)
        self.engine = OneEngine(self.model, config)
        self._scaffold = scaffold
        self._order = build_problem_order(config, self.problems.splits["train"], PassRates())

    def step(self) -> tuple[list[TrainingGroup], UpdateStats]:
        """One step: its groups in slot order, and what the update was."""
        step = self.learner.version
        problems = self._order.batch(step)

        def seed(slot: int, problem: Problem, place: tuple[int | str, ...]) -> int:
            return derive(self.config.train.seed, "sample", step, slot, problem.id, 0, *place)

        groups = self._judged(problems, self._sampled(problems, self.config.train.rollouts, seed))
        groups = [self._rewarded(*pair) for pair in zip(groups, problems, strict=True)]
        trained = [self.estimator.estimate(*pair) for pair in zip(groups, problems, strict=True)]
        if self.estimator.over_batch:
            trained = list(self.estimator.normalise(trained))
        self.learner.begin(step, self.rows.normalisers)
        for piece in self.rows.pieces([group for group in trained if self.rows.counts(group)], 0):
            self.learner.accumulate(self.rows.of(piece))
        stats = self.learner.apply()
        self.engine.load(self.learner)
        return trained, stats

    def evaluate(self, split: Split, samples: int | None = None, memory: VerdictMemory | None = None) -> dict[str, Any]:
        """As an evaluation of the product writes them: `pass_at_k`, `strategies_correct`, `slices` and so on.

        `memory`: what has the verdicts, in place of the run's own.
        """
        evaluate = self.config.evaluate
        count = samples or (evaluate.samples if split == "test" else evaluate.validation_samples)
        problems = with_tests(self.problems.splits[split])

        def seed(_: int, problem: Problem, place: tuple[int | str, ...]) -> int:
            return derive(self.config.train.seed, "evaluate", split, problem.id, *place)

        groups = self._judged(problems, self._sampled(problems, count, seed), memory)
        return evaluation_results(groups, {}, {problem.id: problem.metadata for problem in problems})

    def _rewarded(self, group: Group, problem: Problem) -> Group:
        if not self._reward.used:
            return group
        services: Any = SimpleNamespace(rewards=RewardsHere(self.config))
        return group.with_findings(reward=asyncio.run(self._reward.run(group, problem, services)))

    def _sampled(self, problems: Sequence[Problem], count: int, seed: Any) -> list[Group]:
        async def keep(slot: int, number: int, drafts: Sequence[Draft]) -> None:
            """Nothing is journalled."""

        engine: Any = self.engine
        rounds = ScaffoldRounds(self._scaffold, engine, self.config, count, self.learner.version, seed, keep)

        async def sample() -> list[Group]:
            return [group async for group in rounds.run(dict(enumerate(problems)), {}, ())]

        return sorted(asyncio.run(sample()), key=lambda group: group.slot)

    def _judged(
        self, problems: Sequence[Problem], groups: Sequence[Group], memory: VerdictMemory | None = None
    ) -> list[Group]:
        found = []
        for problem, group in zip(problems, groups, strict=True):
            verdicts = tuple((memory or self.memory).verdicts(problem, group.rollouts))
            group = group.with_findings(score=verdicts)
            if "judge" in needed_stages(self.objective):
                group = group.with_findings(judge=structural_labels(verdicts) or UNKNOWN)
            found.append(group)
        return found


class OneEngine:
    """The engine's actor as an object of this process, as `ScaffoldRounds` asks a generator."""

    samples = True

    def __init__(self, model: Path, config: Config) -> None:
        self._actor = GeneratorActor(ModelFiles(model), config.generator, config.model.dtype)
        self._actor.setup()

    async def encode(self, texts: Sequence[str]) -> Any:
        return self._actor.tokenizer("encode", list(texts))

    async def encode_responses(self, texts: Sequence[str]) -> Any:
        return self._actor.tokenizer("encode_responses", list(texts))

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[Sampled]:
        for group in self._actor.sample(requests):
            yield group

    def load(self, learner: PolicyLearner) -> None:
        self._actor.receive(Parcel(learner.version, weights=learner.host_weights()), learner.version)


def warm_start(config: Config, problems: ProblemSet) -> Path:
    """The folder of the product's own warm start, made here without Ray where none is cached."""
    puzzles = [puzzle_of(problem) for problem in problems.splits["train"]]
    threads = torch.get_num_threads()

    def train(folder: Path) -> None:
        torch.set_num_threads(WARM_START_THREADS)
        chosen = config.warm_start
        tokenizer, recipe = tokenizer_and_recipe(chosen, puzzles)
        trainer = SupervisedTrainer(build_model(len(tokenizer), chosen.seed), chosen)
        for first in range(0, chosen.steps * chosen.batch_size, chosen.batch_size):
            batch = recipe.write({"id": np.arange(first, first + chosen.batch_size)})
            trainer.step(batch["ids"], batch["labels"])
        save_folder(trainer.model, tokenizer, folder)

    try:
        return FolderCache(cache_root() / "warm-start").ensure(warm_start_key(config.warm_start, puzzles), train)
    finally:
        torch.set_num_threads(threads)
