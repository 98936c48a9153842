"""Prompts as the generator reads them, before anything is sampled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raypoly.errors import UsageError
from tests.support.service_times import Times
from tests.support.timed_training import NewestRow, build_parts
from tests.support.virtual_clock import VirtualLoop


def test_a_run_whose_first_prompts_are_too_long_ends_before_its_first_step(tmp_path: Path) -> None:
    """Weights are verified with those prompts, and a run begins with that."""

    async def begun(limit: int) -> int:
        parts = await build_parts(tmp_path / str(limit), Times.drawn(1, 4), 2, False, NewestRow())
        parts.config = parts.config.model_copy(
            update={"generator": parts.config.generator.model_copy(update={"max_prompt_tokens": limit})}
        )
        try:
            return len(await parts.probe_tokens())
        finally:
            parts.stages._scorers.stop()
            await parts.judge_use.close()
            await parts.journal.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(begun(4)) == 4
        with pytest.raises(UsageError, match=r"has 4 tokens, generator\.max_prompt_tokens is 3: raise it"):
            runner.run(begun(3))
