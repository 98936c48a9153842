"""Pages: self-contained HTML, and places in Markdown pages that somebody else writes.

html = html_page("raypoly: mine", section("Judge", table.html()) + image(png, "pass@k over the steps"))
page = fill_place(page, "experiment", "objectives", tables, "docs/results.md")
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from raypoly.analysis.reports.figures import Panel, drawn
from raypoly.core.errors import UsageError
from raypoly.core.visible_text import html_text

_END = "<!-- end -->"


def html_page(title: str, body: str, script: str = "") -> str:
    """A page in one file that asks the network for nothing: its policy forbids it, and runs this `script` alone.

    `body` is HTML: whoever makes it has passed what others wrote through `raypoly.core.visible_text`.
    """
    style = packaged_text("page.css")
    policy = f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html_text(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<style>{style}</style></head>\n<body><main>{body}</main>"
        f"{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def packaged_text(name: str) -> str:
    """A style sheet or script beside this module."""
    return resources.files("raypoly.analysis.reports").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    """What names an element of the page in its policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def section(title: str, *parts: str) -> str:
    """HTML parts under a heading; nothing where all of them are empty."""
    return f"<h2>{html_text(title)}</h2>{''.join(parts)}" if any(parts) else ""


def image(png: bytes, shows: str) -> str:
    """A picture within the page."""
    return f'<img alt="{html_text(shows)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def charts(panels: Sequence[Panel]) -> str:
    """The panels beside each other, stacked where the page is narrow, each with its numbers as a table."""
    return f'<div class="panels">{"".join(map(_chart, panels))}</div>' if panels else ""


def _chart(panel: Panel) -> str:
    png, numbers = drawn(panel)
    table = f"<details><summary>its numbers</summary>{numbers.html()}</details>" if numbers.rows else ""
    return f"<figure>{image(png, panel.shows)}{table}</figure>"


def quiet(text: str) -> str:
    """A paragraph in grey, escaped; nothing for no text."""
    return f'<p class="quiet">{html_text(text)}</p>' if text else ""


def place_marker(kind: str, name: str) -> str:
    """The line of a Markdown page above the place `name`."""
    return f"<!-- {kind}: {name} -->"


def fill_place(page: str, kind: str, name: str, text: str, where: str) -> str:
    """The Markdown page with `text` between the place's marker and the next `_END`.

    Raises `UsageError`, naming the page by `where`, if it has no such place.
    """
    marker = place_marker(kind, name)
    before, found, rest = page.partition(f"{marker}\n")
    _, end, after = rest.partition(_END)
    if not (found and end):
        raise UsageError(f"{where} has no place for the {kind}: write the lines {marker} and {_END} where it belongs.")
    return f"{before}{found}{text}{end}{after}"
