"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def row(*cells: str) -> str:
    """One line of a table, without its end."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A whole table; its lines end with a newline each."""
    return "".join(f"{row(*cells)}\n" for cells in (head, ["---"] * len(head), *rows))
