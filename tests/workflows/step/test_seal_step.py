"""The end of a step: what a stop finds there is of one version."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.timed_run import close_run
from tests.support.virtual_clock import run_virtual
from tests.workflows.step.virtual_run import open_virtual
from workflows.train import Training

REFILL = "train.refill=3"


def test_a_stop_while_a_step_is_sealed_saves_weights_and_memory_of_that_step(tmp_path: Path) -> None:
    async def stopped() -> int:
        opened = await open_virtual(tmp_path, overrides=[REFILL])
        journal, sealed = opened.durability.journal, asyncio.Event()
        seal_step = journal.seal_step

        async def seal_slowly(*step: Any) -> None:
            """The rollout file is there, and the records that it replaces are being deleted."""
            await seal_step(*step)
            sealed.set()
            await asyncio.Event().wait()

        journal.seal_step = seal_slowly  # type: ignore[assignment, method-assign]
        training = asyncio.create_task(Training(opened).step(0))
        await sealed.wait()
        training.cancel()
        await asyncio.wait([training])
        await opened.durability.stop_early(60.0, lambda note: None)
        applied = journal.applied(0)
        await close_run(opened)
        assert applied is not None
        return int(applied.metrics["problems_taken"])

    async def found() -> tuple[int, int]:
        opened = await open_virtual(tmp_path, overrides=[REFILL])
        opened.restore()
        await close_run(opened)
        return opened.services.learner.base, opened.durability.memory.cursor

    taken = run_virtual(stopped())
    assert run_virtual(found()) == (1, taken), "the checkpoint's step, and where the order goes on"
    assert taken >= 4
