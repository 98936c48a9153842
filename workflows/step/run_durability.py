"""Durability of a run: its store and journal, its checkpoints, and what they keep beside the weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayError

from actors.calls import CallContext
from actors.learner import LearnerActor
from raypoly.algorithms.objectives import Objective
from raypoly.core.config import Config
from raypoly.core.errors import RaypolyError
from raypoly.core.values import Group
from raypoly.data.problem_order import PassRates
from raypoly.run.plateau import Plateau
from raypoly.run.store import Store
from raypoly.run.store.shards import MODEL
from raypoly.run.store.step_records import Record
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.checkpoints import Checkpoint
from workflows.durability.journal import Journal
from workflows.liveness.watchdog import STORAGE
from workflows.step.learner_session import LearnerSession
from workflows.step.training_group import TrainingGroup

_OBJECTIVE_STATE = "objective.json"
_CONFIG = "config.json"
_ORDER_STATE = "order.json"  # with `train.refill`: where the next step's problems begin in the order
CURSOR = "problems_taken"
"""The same in a step's row."""


class RunMemory:
    """The run's memory after its last completed step. A resume repeats the step that was under way."""

    def __init__(self, config: Config, objective: Objective) -> None:
        self._refills = bool(config.train.refill)
        self.plateau = Plateau(config.train.stop)
        self._objective = objective
        self.cursor = 0
        self.pass_rates = PassRates()
        """By problem; empty if the order does not depend on them."""
        self.objective_state = b"{}"

    def load(self, checkpoint: Checkpoint) -> None:
        self._objective.load_state_dict(json.loads(checkpoint.read(_OBJECTIVE_STATE)))
        if self._refills:
            self.cursor = json.loads(checkpoint.read(_ORDER_STATE))["place"]

    def take(self, row: Mapping[str, Any], since_checkpoint: bool = True) -> None:
        """`row`: of a completed step; `since_checkpoint`: whether it comes after this start's checkpoint."""
        self.pass_rates.take(row)
        self.plateau.take(row)
        if since_checkpoint:
            self.cursor = row.get(CURSOR, 0)

    def keep_objective(self) -> None:
        self.objective_state = json.dumps(self._objective.state_dict()).encode()

    def files(self) -> dict[str, bytes]:
        order = {_ORDER_STATE: json.dumps({"place": self.cursor}).encode()} if self._refills else {}
        return {_OBJECTIVE_STATE: self.objective_state, **order}


@dataclass
class RunDurability:
    store: Store
    journal: Journal
    checkpoint_writer: CheckpointWriter
    memory: RunMemory
    learner: LearnerSession
    context: CallContext
    tokenizer_files: Mapping[str, bytes]
    model_files: dict[str, bytes] = field(default_factory=dict)
    """Of a Hugging Face folder; the same at every step."""

    async def commit(self, record: Record) -> None:
        """Return when the record is durable."""
        with self.context.in_flight.waiting("commit", STORAGE):
            await self.journal.commit(record)
        self.context.retries.progress()

    async def seal(self, step: int, groups: Sequence[TrainingGroup], encode: Callable[[Group], Group]) -> None:
        with self.context.in_flight.waiting("commit", STORAGE):
            await self.journal.seal_step(
                step,
                [t.group for t in groups],
                [t.rewards for t in groups],
                [t.advantages for t in groups],
                [t.draft_advantages for t in groups],
                [t.token_advantages for t in groups],
                encode,
            )

    async def checkpoint(self) -> None:
        """Copy weights and memory, to be written beside training."""
        if not self.model_files:
            self.model_files = {
                **await self.learner.ask("export", LearnerActor.pretrained_config),
                **self.tokenizer_files,
            }
        kept = {**self.model_files, **self.memory.files()}
        await self.checkpoint_writer.begin(self.learner.version, self.learner.copy, kept)

    async def export(self) -> None:
        """Write the finished model, whole or not at all: without its config, which comes last, a folder is none."""
        await self.checkpoint_writer.wait()
        version = self.learner.version
        if version and self.checkpoint_writer.saved_step != version:  # none, or lost with the learner
            await self.checkpoint()
            await self.checkpoint_writer.wait()
        for key in sorted(self.store.list(MODEL), key=lambda key: key != f"{MODEL}{_CONFIG}"):
            self.store.delete(key)
        writer = self.checkpoint_writer.checkpoints.model_writer()
        files = await self.learner.ask("export", LearnerActor.write_model, writer)
        for name, data in sorted({**files, **self.tokenizer_files}.items(), key=lambda file: file[0] == _CONFIG):
            self.store.put_mutable(f"{MODEL}{name}", data)

    async def stop_early(self, seconds: float, note: Callable[[str], None]) -> None:
        """Commit what is under way, then save a checkpoint of a complete version, if there is time."""
        try:
            async with asyncio.timeout(seconds):
                await self.journal.flush()
                version = self.learner.version
                unsaved = version - 1 in self.journal.completed_steps() and self.checkpoint_writer.saved_step != version
                # the actor may be a step ahead of what was committed
                if unsaved and await self.learner.ask_once("update", LearnerActor.version) == version:
                    note(f"Saving a checkpoint after step {version} ...")
                    await self.checkpoint()
                await self.checkpoint_writer.wait()
        except (TimeoutError, RaypolyError, RayError) as error:
            note(f"No last checkpoint ({type(error).__name__}): the steps since are replayed.")
