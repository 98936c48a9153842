"""Start `raypoly evaluate --model` or `--endpoint` in a process of its own, and kill it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from tests.support.preparation_process import FolderDriver

TWICE = {
    "prompt": "Write f that gives twice the number that it is called with.",
    "entry_point": "f",
    "tests": {"kind": "calls", "cases": [{"args": [4], "expected": 8}]},
}


def write_problems(path: Path, names: Iterable[str]) -> Path:
    """Problems that ask for twice a number, as JSON lines."""
    rows = [{**TWICE, "id": name, "prompt": f"{TWICE['prompt']} Call it {name}."} for name in names]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


class EvaluationDriver(FolderDriver):
    """`raypoly evaluate` in a process of its own."""

    command_name: ClassVar[str] = "evaluate"

    def kill_at(self, commits: int) -> None:
        """Start it, and kill it once the journal has so many objects; a completed step counts as a hundred."""
        self.start()
        while self.lives and self.commits() < commits:
            time.sleep(0.01)
        assert self.lives, self.log()
        self.kill()

    @property
    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "results.json").read_bytes())
        return found

    def outputs(self) -> dict[str, bytes]:
        """The result files' bytes by name."""
        return {name: (self.folder / name).read_bytes() for name in ("results.json", "samples.parquet")}
