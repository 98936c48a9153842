"""Tables: rows of text, shown in a terminal, as Markdown, CSV or LaTeX, or as plain columns.

table = ReportTable(("stage", "problems"), [("load", "863"), ("split", "412")])
console.print(table)
page += table.markdown()
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich import markup
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from raypoly.core.text import visible

DASH = "-"
"""A number that was not measured."""


@dataclass(frozen=True)
class ReportTable:
    """Cells are plain text: each way of showing them escapes what it has to."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Collection[int] | None = None
    """Right-aligned columns; None: all but the first."""
    title: str | None = None
    """For a terminal."""

    def is_number(self, column: int) -> bool:
        return column > 0 if self.numbers is None else column in self.numbers

    def markdown(self) -> str:
        lines = (self.head, ["---"] * len(self.head), *self.rows)
        return "".join("| " + " | ".join(visible(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)

    def csv(self) -> str:
        """Without Markdown's bold."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(map(_without_bold, row) for row in (self.head, *self.rows))
        return text.getvalue()

    def latex(self) -> str:
        """A `tabular` for the package booktabs."""
        kinds = "".join("r" if self.is_number(column) else "l" for column in range(len(self.head)))
        head, *rows = (" & ".join(map(_latex_text, line)) + " \\\\\n" for line in (self.head, *self.rows))
        body = "\\toprule\n" + head + "\\midrule\n" + "".join(rows) + "\\bottomrule\n"
        return f"\\begin{{tabular}}{{{kinds}}}\n{body}\\end{{tabular}}\n"

    def rich(self, narrow: bool = False) -> Table:
        """`narrow`: break the heads of numbers between words."""
        table = Table(title=self.title and markup.escape(visible(self.title)), title_justify="left")
        for column, name in enumerate(self.head):
            number = self.is_number(column)
            overflow: Literal["ellipsis", "fold"] = "ellipsis" if number else "fold"
            justify: Literal["right", "left"] = "right" if number else "left"
            width = self._width(column) if narrow and number else None
            table.add_column(Text(visible(name)), justify=justify, overflow=overflow, width=width)
        for row in self.rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        return table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # columns that do not fit stand in further tables below, each beside the first column
        room = options.max_width - 4 - self._width(0)
        parts, left = [[0]], room
        for column in range(1, len(self.head)):
            left -= self._width(column) + 3
            if left < 0 and len(parts[-1]) > 1:
                parts.append([0])
                left = room - self._width(column) - 3
            parts[-1].append(column)
        whole = sum(max(map(len, column)) + 3 for column in zip(self.head, *self.rows, strict=True))
        for part in parts:
            numbers = [place for place, column in enumerate(part) if self.is_number(column)]
            rows = [[row[column] for column in part] for row in self.rows]
            title = self.title if part is parts[0] else None
            yield replace(
                self, head=[self.head[column] for column in part], rows=rows, numbers=numbers, title=title
            ).rich(narrow=whole >= options.max_width)

    def _width(self, column: int) -> int:
        # numbers stay on one line, and words whole
        cells = [visible(row[column]) for row in self.rows]
        whole = cells if self.is_number(column) else [word for cell in cells for word in cell.split()]
        return max(map(len, [*whole, *self.head[column].split()]), default=0)

    def columns(self, first: int, others: int) -> Iterator[str]:
        """Lines of plain text; `first` and `others` are widths."""
        for name, *cells in (map(visible, row) for row in (self.head, *self.rows)):
            yield (f"{name:{first}}" + "".join(f"{cell:>{others}}" for cell in cells)).rstrip()


def _latex_text(cell: str) -> str:
    # `**grpo**` in bold, a minus as such, and nothing that LaTeX takes for a command.
    plain = _without_bold(cell)
    text = _MINUS.sub("$-$", "".join(_LATEX.get(letter, letter) for letter in plain))
    return text if plain == cell else f"\\textbf{{{text}}}"


def _without_bold(cell: str) -> str:
    return cell[2:-2] if len(cell) > 4 and cell.startswith("**") and cell.endswith("**") else cell


_MINUS = re.compile(r"(?<![\w.])-(?=\d)")
_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"},
    **{"±": "$\\pm$", "<": "$<$", ">": "$>$"},
}


def number(value: float | None) -> str:
    """Three decimals, or a dash for what was not measured."""
    return DASH if value is None else f"{value:.3f}"
