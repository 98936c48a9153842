"""The named numbers that an arm's command leaves in its run's folder, beside what a training leaves: `result.json`.

CommandResult("audit-plans", "Audits, of training problems", {"accepted": 0.9}).write(store)
CommandResult.read(store)                   # None before the command is done
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

from pydantic import TypeAdapter, ValidationError

from raypoly.core.errors import CorruptData, UsageError
from raypoly.run.store import Store
from raypoly.run.store.sealed_files import seal, unseal

RESULT_KEY = "result.json"


@dataclass(frozen=True)
class CommandResult:
    """What a command found. An experiment shows it, and goes on with what is after it only if it passes."""

    command: str
    """`train-gate`, as an arm names it."""
    title: str
    """Heading of the table of such results in a report."""
    numbers: Mapping[str, int | float | None]
    """By the name of their column; None is unknown."""
    line: str = ""
    """The numbers in words, for a log."""
    go_back_to: str | None = None
    """What has to be repeated before anything after it may start; None where it passes."""
    weights: str | None = None
    """Digest of the weights that it is of."""

    @property
    def passes(self) -> bool:
        return self.go_back_to is None

    def write(self, store: Store) -> None:
        store.commit(RESULT_KEY, seal(asdict(self)))

    @classmethod
    def read(cls, store: Store) -> Self | None:
        """None where the run's folder has none. Raises `UsageError` where it is damaged."""
        if not store.exists(RESULT_KEY):
            return None
        place = store.place(RESULT_KEY)
        try:
            return TypeAdapter(cls).validate_python(unseal(store.read(RESULT_KEY), place))
        except (CorruptData, ValidationError) as error:
            raise UsageError(
                f"{place} can't be read ({error}): remove it, and the same command makes it again."
            ) from error
