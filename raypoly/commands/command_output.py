"""Messages of the commands on files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from raypoly.commands.row_writer import STDOUT
from raypoly.core.errors import SandboxError
from raypoly.data.formats import Rejected
from raypoly.verifier.local_pool import BROKEN

NOTES = Console(stderr=True)
"""For remarks: rows may go to standard output."""
SHOWN = 40
"""Most lines of a printed table; `--out` has them all."""


def say(console: Console, text: str) -> None:
    """Print a line as it is, without wrapping or colours."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def note(text: str) -> None:
    say(NOTES, f"Note: {text}")


def results_console(*outs: str | None) -> Console:
    """The console for results: standard output, unless rows go there."""
    return NOTES if STDOUT in outs else Console()


def say_where(console: Console, what: str, out: str | None) -> None:
    """Name the file that holds the rows, where there is one."""
    if out not in (None, STDOUT):
        say(console, f"{what}: {out}")


def note_rejected(path: Path, rejected: Sequence[Rejected]) -> None:
    """Print how many rows can't be used, and why the first can't."""
    if rejected:
        first = rejected[0]
        note(f"left out of {path}: {len(rejected)} rows, the first in line {first.line}: {first.reason}")


def count_of(number: int, what: str) -> str:
    """`1 group`, `1,000 groups`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


@dataclass
class MissingVerdicts:
    """Programs or groups without a verdict, for the sentence at a command's end."""

    what: str
    since: str = ""
    _broken: set[str] = field(default_factory=set)
    _failed: int = 0
    _first: str = ""

    def add(self, problem_id: str, reason: str, name: str) -> None:
        """Count one; `name` identifies it in words."""
        if reason.startswith(BROKEN):
            self._broken.add(problem_id)
        else:
            self._failed += 1
            self._first = self._first or f"the first {name} ({reason})"

    def raise_if_any(self) -> None:
        """Raise `SandboxError` where verdicts are missing."""
        sentences = []
        if self._broken:
            least, others = min(self._broken), len(self._broken) - 1
            tests = f"The tests of {count_of(others + 1, 'problem')} ({least!r}{' is one' if others else ''})"
            sentences.append(f"{tests} can't be run{self.since}; raypoly score --validate finds them.")
        if self._failed:
            failed = count_of(self._failed, self.what)
            sentences.append(f"The sandbox failed on {failed}, {self._first}; give the command again.")
        if sentences:
            raise SandboxError(" ".join(sentences))
