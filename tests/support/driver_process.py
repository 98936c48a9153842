"""Start `raypoly train` or another command in a process group of its own, kill it, and start it again.

driver = Driver("/tmp/run", Path("/tmp/run.log"), [*SMALL, f"model.path={model}"])
driver.start(); driver.kill()           # SIGKILL to its process group
driver.finish()                         # the same command again, to the end; its exit code
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).parents[2]

SMALL = (
    "problems.validation=8",
    "problems.test=8",
    "train.steps=5",
    "train.prompts_per_step=4",
    "train.rollouts=6",
    "train.checkpoint_every=2",
    "reward.name=tests.support.parse_reward:parses",
    "scorer.workers=1",
    "generator.temperature=0.6",
    "evaluate.every=0",
    "ray.dashboard=false",
)
"""Overrides of a run of five small steps. It has checkpoints after steps two and four, so most kills need a replay."""
STEPS = 5


@dataclass
class Driver:
    """`python -m raypoly.train`, or another command, in a process group of its own."""

    place: str
    """The run's `run.dir`."""
    log_file: Path
    overrides: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    command_name: ClassVar[str] = "train"
    alive: ClassVar[list[Driver]] = []
    """Drivers that were started and not seen to end, so that a failing test can kill them."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "raypoly.cli", self.command_name, *self.overrides, f"run.dir={self.place}"]

    def start(self) -> subprocess.Popen[str]:
        ours = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") or k.startswith("RAY_AUTH_")}
        environment = ours | self.environment
        with self.log_file.open("a") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, stdout=log, stderr=log, text=True, env=environment, start_new_session=True
            )
        self.alive.append(self)
        return self.process

    def finish(self, timeout: float | None = 900) -> int:
        """Wait for the end, at most `timeout` seconds, and return the exit code. Starts the command if it does not run.

        Raises `subprocess.TimeoutExpired`.
        """
        process = self.process or self.start()
        code = process.wait(timeout)
        self.forget_process()
        return code

    def kill(self) -> None:
        """Send SIGKILL to the process group."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.forget_process()

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self) -> str:
        return self.log_file.read_text()

    def forget_process(self) -> None:
        """Call it when the process was seen to end."""
        self.process = None
        self.alive.remove(self)
