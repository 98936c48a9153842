"""Preparations in processes of their own, to be killed, and what they end in, to be compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
TINY = ROOT / "configs" / "prepare" / "tiny.yaml"
OUTPUT = ("data/*", "stages/*", "card.*", "excluded.jsonl")
"""What has to be the same however often a preparation was killed."""


class Start:
    """`python -m raypoly.prepare` into a folder, in a process group of its own; its log lies beside the folder."""

    def __init__(
        self, folder: Path, words: Sequence[str], config: Path = TINY, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self._log, self._environment = folder, folder.with_suffix(".log"), environment or {}
        self._command = [sys.executable, "-m", "raypoly.prepare", "--config", str(config), *words, f"run.dir={folder}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ours = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") or k.startswith("RAY_AUTH_")}
        environment = {**ours, **self._environment}
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def wait(self, seconds: float | None = None) -> int:
        """Its exit code. Raises `subprocess.TimeoutExpired`."""
        assert self._process is not None
        code = self._process.wait(seconds)
        self._process = None
        return code

    def finish(self) -> None:
        """Start where nothing runs, and go to the end. Raises `RuntimeError` where it fails."""
        if self._process is None:
            self.start()
        if self.wait() != 0:
            raise RuntimeError(f"raypoly prepare failed:\n{self.log()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL to the process group."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    @property
    def lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        return self._log.read_text()

    def commits(self) -> int:
        """Objects of the journal and completed steps that are there."""
        steps = len(list(self.folder.glob("rollouts/*.parquet")))
        return 100 * steps + len(list(self.folder.glob("journal/*/*.arrow")))


def files(folder: Path) -> dict[str, bytes]:
    """What a preparation ended in, by name."""
    found = (path for pattern in OUTPUT for path in folder.glob(pattern))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(found)}


def differences(one: Path, another: Path) -> list[str]:
    """Files that are not the same in both."""
    ours, theirs = files(one), files(another)
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
