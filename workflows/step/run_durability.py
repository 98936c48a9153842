"""What makes a run last: its store and journal, its checkpoints, and what it remembers beside the weights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ray.exceptions import RayError

from actors.calls import CallContext
from raypoly.errors import RaypolyError
from raypoly.store import Store
from raypoly.store.step_records import Record
from workflows.durability.checkpoint_writer import CheckpointWriter
from workflows.durability.journal import Journal
from workflows.durability.run_memory import RunMemory
from workflows.liveness.watchdog import STORAGE
from workflows.step.learner_session import LearnerSession, TrainingGroup


@dataclass
class RunDurability:
    """Of one run."""

    store: Store
    journal: Journal
    checkpoint_writer: CheckpointWriter
    memory: RunMemory
    learner: LearnerSession
    context: CallContext
    tokenizer_files: Mapping[str, bytes]
    model_files: dict[str, bytes] = field(default_factory=dict)
    """What makes a checkpoint's folder a Hugging Face one; the same at every step."""

    async def commit(self, record: Record) -> None:
        """Return when the record is durable."""
        with self.context.in_flight.waiting("commit", STORAGE):
            await self.journal.commit(record)
        self.context.retries.progress()

    async def seal(self, step: int, groups: Sequence[TrainingGroup]) -> None:
        """Write the step's rollout file in place of its records."""
        with self.context.in_flight.waiting("commit", STORAGE):
            await self.journal.seal_step(
                step, [t.group for t in groups], [t.rewards for t in groups], [t.advantages for t in groups]
            )

    async def checkpoint(self) -> None:
        """Return when a copy of this version is taken, of weights and memory alike; it is written meanwhile."""
        if not self.model_files:
            self.model_files = {**await self.learner.pretrained_config(), **self.tokenizer_files}
        files = {**self.model_files, **self.memory.files()}
        await self.checkpoint_writer.begin(self.learner.version, self.learner.copy, files)

    async def export(self) -> None:
        """Write the final weights as a Hugging Face folder, behind their checkpoint."""
        await self.checkpoint_writer.wait()
        version = self.learner.version
        if version and self.checkpoint_writer.saved_step != version:  # none, or lost with the learner
            await self.checkpoint()
            await self.checkpoint_writer.wait()
        for name, data in {**await self.learner.pretrained(), **self.tokenizer_files}.items():
            self.store.put_mutable(f"model/{name}", data)

    async def stop_early(self, seconds: float, note: Callable[[str], None]) -> None:
        """Commit what is under way, then save a checkpoint of a version that is complete, where there is time."""
        try:
            async with asyncio.timeout(seconds):
                await self.journal.flush()
                version = self.learner.version
                unsaved = version - 1 in self.journal.completed_steps() and self.checkpoint_writer.saved_step != version
                # the actor may be a step ahead of what was committed
                if unsaved and await self.learner.applied() == version:
                    note(f"Saving a checkpoint after step {version} ...")
                    await self.checkpoint()
                await self.checkpoint_writer.wait()
        except (TimeoutError, RaypolyError, RayError) as error:
            note(f"No last checkpoint ({type(error).__name__}): the steps since are replayed.")
