"""Prompts as the generator reads them, before anything is sampled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raypoly.errors import UsageError
from tests.support.service_times import Times
from tests.support.timed_run import close_run, open_timed_run, timed_config
from tests.support.virtual_clock import VirtualLoop


def test_a_run_whose_first_prompts_are_too_long_ends_before_its_first_step(tmp_path: Path) -> None:
    """Weights are verified with those prompts, and a run begins with that."""

    async def begun(limit: int) -> int:
        times = Times.drawn(1, 4)
        config = timed_config(
            len(times.groups), len(times.groups[0].programs), 2, f"generator.max_prompt_tokens={limit}"
        )
        opened = await open_timed_run(tmp_path / str(limit), times, config=config)
        try:
            return len(await opened.weights.probe_tokens())
        finally:
            await close_run(opened)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(begun(4)) == 4
        with pytest.raises(UsageError, match=r"has 4 tokens, generator\.max_prompt_tokens is 3: raise it"):
            runner.run(begun(3))
