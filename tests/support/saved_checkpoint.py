"""Checkpoints of any files, as if the driver alone had written them."""

from __future__ import annotations

from collections.abc import Mapping

from workflows.durability.checkpoints import Checkpoint, Checkpoints


def save_checkpoint(checkpoints: Checkpoints, step: int, files: Mapping[str, bytes]) -> Checkpoint:
    """Commit a checkpoint without shards. A valid one of this step stays as it is and is returned."""
    writer = checkpoints.prepare(step, ranks=0)
    return checkpoints.verified(step) if writer is None else checkpoints.commit(writer, (), files)
