"""CPPO's stages, killed anywhere: each ends with the bits of a run that was not, and commits nothing twice.

The product's loop runs over a virtual clock, with its own programs, gate, objectives, journal and checkpoints. A kill
stops it at some call that changes a file, half-way through if that is a write: between two of them it leaves nothing
else behind. `tests/workflows/cppo/test_gate_training.py` kills the seal of a gate.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest

from raypoly import Run
from raypoly.analysis.experiments.run_result import RESULT_KEY
from raypoly.core.config import Config
from raypoly.core.settings import load
from raypoly.core.values import Int32, Rollout
from raypoly.data import ProblemSet
from raypoly.data.puzzles import load_puzzles
from raypoly.rollouts.engines import SampleRequest
from raypoly.rollouts.scaffolds.run_scaffolds import fit_problems
from raypoly.run.crash import CONFIG_KEY
from raypoly.run.sinks import METRICS, MetricsFile, Sinks
from raypoly.run.store.local_store import LocalStore
from raypoly.run.store.sealed_files import seal
from raypoly.run.store.step_records import decode
from tests.support.run_differences import run_differences
from tests.support.service_times import Times
from tests.support.stopping_disk import Stopped, StoppingDisk
from tests.support.timed_run import close_run, open_timed_run, release_lease
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import Recorded, Sampler
from workflows.cppo.plan_audit import audit
from workflows.startup.open_run import OpenRun
from workflows.train import Training

SMALL = (
    *("train.prompts_per_step=3", "train.rollouts=4", "train.steps=4", "train.checkpoint_every=2"),
    *("evaluate.every=2", "evaluate.samples=4", "evaluate.validation_samples=4", "evaluate.judge=false"),
    *("generator.max_prompt_tokens=4000", "generator.max_tokens=4000", "problems.budgets=false"),
)
CPPO = (
    *("scaffold.name=tuple", "scaffold.methods=2", "objective.name=cppo", "loss.name=clipped_surrogate"),
    "evaluate.scaffolds=[direct]",  # which needs no encoder to compare methods
)
STAGES = {
    "sft": ("scaffold.name=gold_plans", "scaffold.replay=.5", "objective.name=supervised"),
    "gate": ("scaffold.name=labelled_plans", "objective.name=supervised", "evaluate.every=0"),
    "warm_up": (
        *CPPO,
        *("objective.reward=gate", "scaffold.solve=false", "train.steps=12"),
        *("train.stop.measure=gate/accepted", "train.stop.window=1", "train.stop.least_gain=-0.2"),
    ),
    "audit": (*CPPO, "train.steps=0", "evaluate.every=0"),
    "joint": CPPO,
}
_DEAD = 2**22 + 1
"""A number that no process has."""
_CALLS_OF_A_START = 5
"""Those that take the lease."""
KILLS = 20
"""Of each stage: half of them strike runs that were killed before."""
TIMES = ("time", "seconds", "exposed", "tail", "tokens_per_second", "paused_seconds", "pauses")
"""What differs between rows of the same step."""


class Planner(Sampler):
    """Two of three plans keep the contract."""

    async def encode(self, texts: Sequence[str]) -> list[Int32]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]

    async def sample(self, requests: Sequence[SampleRequest]) -> AsyncIterator[tuple[int, tuple[Rollout, ...]]]:
        plans = {request.slot for request in requests if request.max_tokens is not None}
        async for slot, rollouts in super().sample(requests):
            yield slot, tuple(map(planned, rollouts)) if slot in plans else rollouts


def planned(rollout: Rollout) -> Rollout:
    first, second = rollout.seed % 9973, rollout.seed % 9967 if rollout.seed % 3 else rollout.seed % 9973
    return replace(rollout, text=f"A: Add up the numbers below {first}.\nB: Add up the numbers below {second}.\n")


@dataclass(frozen=True)
class Stage:
    name: str
    config: Config
    problems: ProblemSet

    def live(self, folder: Path, disk: StoppingDisk) -> None:
        """Start, or go on, until it ends or the disk stops it."""
        run_virtual(self._live(folder, disk))

    async def _live(self, folder: Path, disk: StoppingDisk) -> None:
        opened: OpenRun | None = None
        with patch("raypoly.run.store.shards.open_store", lambda *_, make: LocalStore(folder, disk, make)):
            try:
                opened = await open_timed_run(
                    folder,
                    Times.drawn(1, 4),
                    config=self.config,
                    generator=Planner((), True),
                    learner=lambda config, journal, writer, groups: Recorded(config, journal, writer, 1),
                    problems=self.problems.splits["train"],
                    disk=disk,
                )
                await self._work(opened)
            finally:
                if opened is not None:
                    await opened.durability.checkpoint_writer.idle()
                    await close_run(opened)
                release_lease(folder)
                for left in folder.rglob(f".*-{os.getpid()}-*.part"):  # the next start is another process
                    left.rename(left.with_name(left.name.replace(f"-{os.getpid()}-", f"-{_DEAD}-")))

    async def _work(self, opened: OpenRun) -> None:
        opened.problems = self.problems
        if not opened.durability.store.exists(CONFIG_KEY):
            opened.durability.store.commit(CONFIG_KEY, seal(self.config.model_dump(mode="json")))
        opened.observers.sinks = Sinks([MetricsFile(opened.path / METRICS)])
        await opened.services.learner.start()
        opened.restore()
        if self.name != "audit":
            await Training(opened).run()
        elif not (opened.path / RESULT_KEY).exists():
            await opened.weights.sync()
            await audit(opened, 0.0, 0.1)


class NotingDisk(StoppingDisk):
    """Notes what was committed, by record or file; a checkpoint that was not whole is written again."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__(at)
        self.committed: Counter[Any] = Counter()

    def publish(self, aside: Path, path: Path) -> None:
        new = not path.exists()
        try:
            super().publish(aside, path)
        finally:
            if new and path.exists():  # also where it died on its way back
                self._note(path)

    def _note(self, path: Path) -> None:
        if path.suffix == ".arrow":
            step = int(path.parent.name.removeprefix("step-"))
            records = decode(step, int(path.stem), path.read_bytes())
            self.committed.update((record.step, record.slot, record.kind) for record in records)
        elif "checkpoints" not in path.parts:
            self.committed[path.name] += 1


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest) -> Stage:
    config = load(None, [*SMALL, *STAGES[request.param]], str)
    splits = fit_problems(load_puzzles(config.problems), config).splits
    few = {"train": splits["train"][:7], "validation": splits["validation"][:2], "test": splits["test"][:2]}
    return Stage(request.param, config, ProblemSet(few, ""))


def test_a_stage_killed_anywhere_ends_with_the_same_bits_and_commits_nothing_twice(
    stage: Stage, tmp_path: Path
) -> None:
    whole = NotingDisk()
    stage.live(tmp_path / "whole", whole)
    assert set(whole.committed.values()) == {1}
    if stage.name == "warm_up":
        assert Run(tmp_path / "whole").steps_done == 7, "at its plateau, five steps before its last"
    rng, trials, kills = random.Random(f"kills of {stage.name}"), KILLS // 2, 0
    for trial in range(trials):
        folder = tmp_path / f"killed-{trial}"
        first = rng.randrange(whole.calls * trial // trials, whole.calls * (trial + 1) // trials) + 1
        again = rng.randrange(max(_CALLS_OF_A_START, (whole.calls - first) * 9 // 10)) + 1
        disks = [NotingDisk(first), NotingDisk(again), NotingDisk()]
        for disk in disks:
            try:
                stage.live(folder, disk)
            except* Stopped:
                kills += 1
        assert differences(folder, tmp_path / "whole") == []
        assert sum((disk.committed for disk in disks), Counter()) == whole.committed, "nothing twice, and nothing less"
    assert kills == KILLS


def differences(folder: Path, whole: Path) -> list[str]:
    """What differs between the ends of two runs."""
    if (whole / RESULT_KEY).exists():
        return [] if (folder / RESULT_KEY).read_bytes() == (whole / RESULT_KEY).read_bytes() else [RESULT_KEY]
    found = run_differences(Run(folder), Run(whole))
    if untimed(Run(folder).rows) != untimed(Run(whole).rows):
        found.append(METRICS)
    if untimed(Run(folder).summary["evaluations"]) != untimed(Run(whole).summary["evaluations"]):
        found.append("the evaluations' results")
    for file in sorted(whole.glob("rollouts/evaluation-*.parquet")):
        if not pq.read_table(folder / "rollouts" / file.name).equals(pq.read_table(file)):
            found.append(file.name)
    for file in sorted(whole.glob("model/*")):
        if (folder / "model" / file.name).read_bytes() != file.read_bytes():
            found.append(f"model/{file.name}")
    return found


def untimed(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]
