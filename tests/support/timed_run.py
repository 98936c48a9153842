"""A run of the product's own loop over timed services: nothing is decoded, executed or trained.

opened = await open_timed_run(folder, Times.drawn(1, 4))
await Training(opened).step(0)
await close_run(opened)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from actors.calls import CallContext
from raypoly.algorithms.objectives import Objective
from raypoly.core.config import Config
from raypoly.core.settings import load
from raypoly.core.values import Problem, TestSuite
from raypoly.data import ProblemSet
from raypoly.run.sinks import Sinks
from raypoly.run.store import Lease, acquire_lease
from raypoly.run.store.local_store import Disk, LocalStore
from tests.support.service_times import Times
from tests.support.timed_services import RewardsHere, TimedGenerator, TimedJudge, TimedLearnerSession, TimedScorers
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.checkpoints import Checkpoints
from workflows.durability.journal import Journal
from workflows.liveness.judge_drift import JudgeDriftMonitor
from workflows.liveness.judge_pause import JudgeOutagePause
from workflows.liveness.watchdog import Stacks, Watchdog
from workflows.observers.progress import Progress
from workflows.observers.run_judge_usage import RunJudgeUsage
from workflows.observers.summary import Summary
from workflows.startup.open_run import OpenRun
from workflows.startup.run_parts import NamedParts
from workflows.step.learner_session import LearnerSession
from workflows.step.run_durability import RunDurability, RunMemory
from workflows.step.run_observers import RunObservers
from workflows.step.services import Services
from workflows.step.stages import build_stages
from workflows.step.training_group import SkippedGroups

_LEASES: dict[Path, Lease] = {}
"""Of the runs that are open, by their folders."""


class NewestRow:
    """A sink that keeps the newest row of metrics; it stands for Ray's metrics too."""

    row: Mapping[str, Any]

    def log(self, row: Mapping[str, Any]) -> None:
        self.row = row

    def log_evaluation(self, results: Mapping[str, Any]) -> None:
        """Rows alone are kept."""

    def close(self) -> None:
        """Nothing is held."""


async def open_timed_run(
    folder: Path,
    times: Times,
    workers: int = 2,
    colocated: bool = False,
    *,
    config: Config | None = None,
    objective: Objective | None = None,
    generator: Any = None,
    scorers: Any = None,
    problems: Sequence[Problem] = (),
    learner: Callable[..., LearnerSession] = TimedLearnerSession,
    disk: Disk | None = None,
) -> OpenRun:
    """A run in this folder, not restored. `colocated`: the learner's device is free when generation is over."""
    config = config or timed_config(len(times.groups), len(times.groups[0].programs), workers)
    parts = NamedParts.build(config)
    if objective is not None:
        parts = replace(parts, objective=objective, stages=build_stages(config, objective))
    store = LocalStore(folder, disk)
    lease = _LEASES[folder] = acquire_lease(store, "timed run")
    journal = Journal(store)
    writer = CheckpointWriter(Checkpoints(store, lease), journal.index_before, _unheard)
    context = CallContext()
    judge: Any = TimedJudge()
    scorers = scorers or TimedScorers(config.scorer, {}, context=context)
    await scorers.start()
    session = learner(config, journal, writer, len(times.groups))
    rewards: Any = None
    generator = generator or TimedGenerator(times, colocated)
    rewards: Any = RewardsHere(config)
    services = Services(generator, session, scorers, judge, SkippedGroups(0.0, _unheard), context, rewards)
    durability = RunDurability(store, journal, writer, RunMemory(config, parts.objective), session, context, {})
    progress, rows = Progress(Console(file=(folder / "progress.txt").open("w"))), NewestRow()
    observers = RunObservers(
        progress,
        Sinks([rows]),
        Summary(store, journal, config),
        rows,  # type: ignore[arg-type]
        RunJudgeUsage(store),
        JudgeDriftMonitor(config, scorers, judge, _unheard),
        JudgeOutagePause(config.judge, progress),
        Watchdog(600.0, context.in_flight, dict, Stacks(store), _unheard, _raised),
        rows,  # type: ignore[arg-type]
    )
    train = problems or timed_problems(len(times.groups))
    problem_set = ProblemSet({"train": train, "validation": (), "test": ()}, "")
    return OpenRun(folder, config, problem_set, parts, services, durability, observers)


async def close_run(opened: OpenRun) -> None:
    """Stop its services, as a driver does that ends."""
    opened.services.scorers.stop()
    await opened.observers.judge_usage.close()
    await opened.durability.journal.close()
    release_lease(opened.path)


def release_lease(folder: Path) -> None:
    """As the kernel does where a driver dies."""
    if folder in _LEASES:
        _LEASES.pop(folder).release()


def timed_config(groups: int, rollouts: int, workers: int, *overrides: str) -> Config:
    """Two steps of Poly-EPO, so many groups of so many rollouts each."""
    keys = {
        "train.prompts_per_step": groups,
        "train.rollouts": rollouts,
        "train.steps": 2,
        "train.checkpoint_every": 2,
        "scorer.workers": workers,
        "objective.name": "poly_epo",
    }
    return load(None, [*(f"{key}={value}" for key, value in keys.items()), *overrides], _unheard)


def timed_problems(count: int) -> list[Problem]:
    """So many problems, `p0` to the last."""
    return [
        Problem(f"p{i}", f"Problem {i}.", "f", TestSuite("calls", f"[{i}]"), answer="completion", prefix="def f():\n")
        for i in range(count)
    ]


def _unheard(text: str) -> None:
    """Nobody reads what these short runs say."""


def _raised(error: Exception) -> None:
    raise error
