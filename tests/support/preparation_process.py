"""Start `raypoly prepare` in a process of its own, kill it, and compare the files that it ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from tests.support.driver_process import ROOT, Driver

TINY = ROOT / "configs" / "prepare" / "tiny.yaml"
OUTPUT = ("data/*", "stages/*", "card.*", "excluded.jsonl")
"""Files that have to be the same however often a preparation was killed."""


class FolderDriver(Driver):
    """A command into a local folder. Its log is beside the folder."""

    def __init__(self, folder: Path, words: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        super().__init__(str(folder), folder.with_suffix(".log"), list(words), dict(environment or {}))
        self.folder = folder

    def complete(self) -> None:
        """Wait for the end, however long it takes. Raises `RuntimeError` if the command fails."""
        if self.finish(timeout=None) != 0:
            raise RuntimeError(f"raypoly {self.command_name} failed:\n{self.log()[-2000:]}")

    def commits(self) -> int:
        """A count of journal objects; a completed step counts as a hundred."""
        steps = len(list(self.folder.glob("rollouts/*.parquet")))
        return 100 * steps + len(list(self.folder.glob("journal/*/*.arrow")))


class PreparationDriver(FolderDriver):
    """`raypoly prepare` in a process of its own."""

    command_name: ClassVar[str] = "prepare"

    def __init__(
        self, folder: Path, words: Sequence[str], config: Path = TINY, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(folder, ["--config", str(config), *words], environment)


def read_outputs(folder: Path) -> dict[str, bytes]:
    """The files of a finished preparation: bytes by name."""
    found = (path for pattern in OUTPUT for path in folder.glob(pattern))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(found)}


def changed_outputs(one: Path, another: Path) -> list[str]:
    """Names of the files that differ."""
    ours, theirs = read_outputs(one), read_outputs(another)
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
