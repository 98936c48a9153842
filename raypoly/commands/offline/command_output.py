"""Messages of the commands on files: remarks, rows left out, the place of the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from raypoly.commands.offline.row_writer import STDOUT
from raypoly.core.errors import SandboxError
from raypoly.data.formats import Rejected

NOTES = Console(stderr=True)
"""Progress and remarks: rows may go to standard output."""
SHOWN = 40
"""Most lines that are printed of a table; `--out` has them all."""


def say(console: Console, text: str) -> None:
    """Print a line as it is, without wrapping or colours."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def results_console(*outs: str | None) -> Console:
    """The console for results: standard output, unless rows go there."""
    return NOTES if STDOUT in outs else Console()


def say_where(console: Console, what: str, out: str | None) -> None:
    """Name the file that holds the rows, where there is one."""
    if out not in (None, STDOUT):
        say(console, f"{what}: {out}")


def note_rejected(path: Path, rejected: Sequence[Rejected]) -> None:
    """Print how many rows of a file can't be used, and why the first can't."""
    if rejected:
        first = rejected[0]
        say(NOTES, f"Note: left out of {path}: {len(rejected)} rows, the first in line {first.line}: {first.reason}")


def count_of(number: int, what: str) -> str:
    """`1 group`, `1,000 groups`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def raise_failures(broken: Sequence[str], failed: int, what: str, first: str, reason: str, since: str = "") -> None:
    """Raise `SandboxError` where verdicts are missing.

    `broken` are ids of problems whose tests can't be run (`since` ends that sentence). The sandbox failed on `failed`
    programs or groups (`what`), the `first` of them for `reason`.
    """
    sentences = []
    if broken:
        one = f"{broken[0]!r} is one" if len(broken) > 1 else repr(broken[0])
        tests = f"The tests of {count_of(len(broken), 'problem')} ({one}) can't be run{since}"
        sentences.append(f"{tests}; raypoly score --validate finds them.")
    if failed:
        sentences.append(f"The sandbox failed on {count_of(failed, what)}, {first} ({reason}); give the command again.")
    if sentences:
        raise SandboxError(" ".join(sentences))
