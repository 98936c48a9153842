"""Tables: rows of text, shown in a terminal, as Markdown, as HTML or as plain columns.

table = ReportTable(("stage", "problems"), [("load", "863"), ("split", "412")])
console.print(table)
page += table.markdown()
body += table.html()
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

from raypoly.core.visible_text import html_text, visible

DASH = "-"
"""Stands for a number that was not measured."""


@dataclass(frozen=True)
class ReportTable:
    """One table. Cells are plain text: each way of showing them escapes what it has to."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Collection[int] | None = None
    """Columns that are aligned right; None: all but the first."""
    title: str | None = None
    """Shown in a terminal only."""

    def _is_number(self, column: int) -> bool:
        return column > 0 if self.numbers is None else column in self.numbers

    def markdown(self) -> str:
        """Each line ends with a newline."""
        lines = (self.head, ["---"] * len(self.head), *self.rows)
        return "".join("| " + " | ".join(visible(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)

    def html(self) -> str:
        """A `<table>` whose first column names the rows, in a box that scrolls where the page is narrow."""
        head = "".join(f'<th scope="col"{self._kind(i)}>{html_text(name)}</th>' for i, name in enumerate(self.head))
        rows = "".join(map(self._html_row, self.rows))
        return (
            f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        )

    def _html_row(self, cells: Sequence[str]) -> str:
        tags = ['th scope="row"', *["td"] * (len(cells) - 1)]
        marked = (
            f"<{tag}{self._kind(i)}>{html_text(cell)}</{tag[:2]}>"
            for i, (tag, cell) in enumerate(zip(tags, cells, strict=True))
        )
        return f"<tr>{''.join(marked)}</tr>"

    def _kind(self, column: int) -> str:
        return ' class="n"' if self._is_number(column) else ""

    def csv(self) -> str:
        """With a head; cells as they are shown, but for Markdown's bold."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(map(_without_bold, row) for row in (self.head, *self.rows))
        return text.getvalue()

    def latex(self) -> str:
        """A `tabular` for the package booktabs."""
        kinds = "".join("r" if self._is_number(column) else "l" for column in range(len(self.head)))
        head, *rows = (" & ".join(map(_latex_text, line)) + " \\\\\n" for line in (self.head, *self.rows))
        body = "\\toprule\n" + head + "\\midrule\n" + "".join(rows) + "\\bottomrule\n"
        return f"\\begin{{tabular}}{{{kinds}}}\n{body}\\end{{tabular}}\n"

    def rich(self, narrow: bool = False) -> Table:
        """For a terminal. `narrow`: the heads of numbers are broken between words."""
        table = Table(title=self.title and markup.escape(visible(self.title)), title_justify="left")
        for column, name in enumerate(self.head):
            number = self._is_number(column)
            overflow: Literal["ellipsis", "fold"] = "ellipsis" if number else "fold"
            justify: Literal["right", "left"] = "right" if number else "left"
            width = self._width(column) if narrow and number else None
            table.add_column(Text(visible(name)), justify=justify, overflow=overflow, width=width)
        for row in self.rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        return table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """In a terminal. Columns that do not fit stand in further tables below, each behind the first column."""
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
            numbers = [place for place, column in enumerate(part) if self._is_number(column)]
            rows = [[row[column] for column in part] for row in self.rows]
            title = self.title if part is parts[0] else None
            yield replace(
                self, head=[self.head[column] for column in part], rows=rows, numbers=numbers, title=title
            ).rich(narrow=whole >= options.max_width)

    def _width(self, column: int) -> int:
        """Of a column: numbers stay on one line, and words whole."""
        cells = [visible(row[column]) for row in self.rows]
        whole = cells if self._is_number(column) else [word for cell in cells for word in cell.split()]
        return max(map(len, [*whole, *self.head[column].split()]), default=0)

    def columns(self, first: int, others: int) -> Iterator[str]:
        """Lines of plain text. `first` and `others` are widths; a row may have fewer cells than the head."""
        for name, *cells in (map(visible, row) for row in (self.head, *self.rows)):
            yield (f"{name:{first}}" + "".join(f"{cell:>{others}}" for cell in cells)).rstrip()


def _latex_text(cell: str) -> str:
    """`**grpo**` in bold, a minus as such, and no character that LaTeX would take for a command."""
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


def duration(seconds: float) -> str:
    """`12 s`, `4.5 min`, `7.1 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
