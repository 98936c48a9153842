"""Writer of checkpoints beside training, one at a time. Training waits only for the copy on the host.

await writer.begin(step=10, copy=learner.copy, files={"objective.json": b"{}"})
writer.check()               # each step: raises the error of a write that has failed
await writer.wait()          # at the end
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from actors.calls import LOST, reason
from raypoly.core.errors import RaypolyError
from raypoly.run.store.shards import Shard, ShardWriter
from workflows.durability.checkpoints import Checkpoints

Copy = Callable[[ShardWriter], Awaitable[Sequence[Shard]]]
"""Writes a copy of every rank's state and returns the shards."""


class CheckpointWriter:
    def __init__(
        self,
        checkpoints: Checkpoints,
        index_before: Callable[[int], Awaitable[None]],
        note: Callable[[str], None],
        ranks: int = 1,
    ) -> None:
        """`index_before` is awaited with the step of each new checkpoint. `ranks` write each checkpoint."""
        self.checkpoints, self._index_before, self._note, self._ranks = checkpoints, index_before, note, ranks
        self._task: asyncio.Task[None] | None = None
        self.saved_step: int | None = None
        """The step of this process's last checkpoint."""

    async def begin(self, step: int, copy: Callable[[], Awaitable[Copy]], files: Mapping[str, bytes]) -> None:
        """Return when the copy is made. Waits for the checkpoint before. `files` are the driver's own."""
        await self.wait()
        copied = await copy()
        self._task = asyncio.get_running_loop().create_task(self._save(step, copied, files))

    def check(self) -> None:
        """Raise the error of the last checkpoint if it has failed."""
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            task.result()

    async def wait(self) -> None:
        await self.idle()
        self.check()

    async def idle(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        # A failure becomes a note: the run is ending anyway.
        try:
            await self.wait()
        except RaypolyError as error:
            self._note(f"The last checkpoint was not written, its steps will be replayed: {error}")

    async def _save(self, step: int, copied: Copy, files: Mapping[str, bytes]) -> None:
        writer = await asyncio.to_thread(self.checkpoints.prepare, step, self._ranks)
        if writer is not None:
            try:
                shards = await copied(writer)
            except LOST as error:
                self._note(
                    f"The learner was lost while the checkpoint of step {step} was written ({reason(error)}); "
                    "a later one will do."
                )
                return
            await asyncio.to_thread(self.checkpoints.commit, writer, shards, files)
        self.saved_step = step
        await self._index_before(step)
