"""The pause of training during an outage, of the judge or of what another stage asks, never a label or a reward.

A stage raises `Away` (the judge's client its subclass `JudgeUnavailable`); `StageRunner._run` calls it through here.
The pause is shown, the judge is probed, and training goes on by itself. `judge.max_pause` may set a limit.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from raypoly.core.config import JudgeConfig
from raypoly.core.errors import Away, PausedTooLong
from workflows.observers.progress import Progress

T = TypeVar("T")

LONGEST_WAIT = 60.0
"""Seconds between probes, at most."""
COMMAND_SECONDS = 10.0
"""How long training waits for `run.on_pause` when the judge is back."""


class JudgeOutagePause:
    def __init__(
        self,
        config: JudgeConfig,
        progress: Progress,
        on_pause: str | None = None,
        on_change: Callable[[Mapping[str, Any], str], None] = lambda pause, state: None,
    ) -> None:
        """`on_change` gets each pause as it begins (`paused`), and as it ends (`running`), then with its `seconds`."""
        self._config, self._progress = config, progress
        self._on_pause, self._on_change = on_pause, on_change
        self._open = asyncio.Event()
        self._open.set()
        self._pauses: list[dict[str, Any]] = []

    async def ask(self, stage: str, question: Callable[[], Awaitable[T]], probe: Callable[[], Awaitable[None]]) -> T:
        """The answer to a stage's question, after any pause, which calls `probe` until it raises no `Away`. Raises
        `PausedTooLong`."""
        while True:
            await self._open.wait()
            try:
                return await question()
            except Away as error:
                if self._open.is_set():  # else another caller has found it away, and pauses for all
                    await self._pause(stage, str(error), probe)

    @property
    def is_paused(self) -> bool:
        return not self._open.is_set()

    def take_pauses(self) -> list[dict[str, Any]]:
        """The pauses that ended since the last call: `{since, seconds, reason}`."""
        ended, self._pauses = self._pauses, []
        return ended

    async def _pause(self, stage: str, reason: str, probe: Callable[[], Awaitable[None]]) -> None:
        since, started = datetime.now(UTC), time.monotonic()
        pause: dict[str, Any] = {"since": since.isoformat(), "reason": reason}
        self._open.clear()
        self._on_change(pause, "paused")
        self._progress.pause(reason, since)
        command = asyncio.create_task(self._run_command(reason, since))
        try:
            await self._wait_until_back(stage, started, probe)
            await asyncio.wait([command], timeout=COMMAND_SECONDS)
        except BaseException:
            # the run ends in this pause, which has to be recorded
            self._on_change({**pause, "seconds": round(time.monotonic() - started, 3)}, "paused")
            raise
        finally:
            command.cancel()
            await asyncio.gather(command, return_exceptions=True)
        seconds = time.monotonic() - started
        self._pauses.append({**pause, "seconds": round(seconds, 3)})
        self._progress.resume(seconds)
        self._on_change(self._pauses[-1], "running")
        self._open.set()

    async def _wait_until_back(self, stage: str, started: float, probe: Callable[[], Awaitable[None]]) -> None:
        wait = self._config.probe_seconds
        while True:
            left = self._seconds_left(started)
            await asyncio.sleep(min(wait, left))
            try:
                await probe()
                return
            except Away as error:
                if self._seconds_left(started) <= 0:
                    raise PausedTooLong(
                        f"What the stage {stage} asks stayed away for judge.max_pause={self._config.max_pause:g} s "
                        f"({error}); everything is committed, resume with the same command."
                    ) from error
                wait = min(2 * wait, LONGEST_WAIT)

    def _seconds_left(self, started: float) -> float:
        limit = self._config.max_pause
        return float("inf") if limit is None else max(0.0, limit - (time.monotonic() - started))

    async def _run_command(self, reason: str, since: datetime) -> None:
        """Run the user's `run.on_pause`, if there is one; kill it where this is cancelled. A failure gives a note."""
        if (command := self._on_pause) is None:
            return
        environment = os.environ | {"RAYPOLY_PAUSE_REASON": reason, "RAYPOLY_PAUSE_SINCE": since.isoformat()}
        process = await asyncio.create_subprocess_shell(
            command, env=environment, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            self._progress.note(f"run.on_pause had not ended when the pause did, and was killed: {command}")
            raise
        if code != 0:
            self._progress.note(f"run.on_pause ended with exit code {code}: {command}")
