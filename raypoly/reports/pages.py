"""Pages: self-contained HTML, and places in Markdown pages that somebody else writes.

html = html_page("raypoly: mine", section("Judge", table.html()) + image(png, "pass@k over the steps"))
page = fill_place(page, "experiment", "objectives", tables, "docs/results.md")
"""

from __future__ import annotations

import base64
from html import escape

from raypoly.errors import UsageError

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em; color: #1c2733; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.15em; margin-top: 2em; border-bottom: 1px solid #dde3e9; }
table { border-collapse: collapse; margin: .6em 0; } th, td { padding: .25em .8em; border-bottom: 1px solid #e6ebef; }
th { text-align: left; font-weight: 600; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; } .quiet { color: #66727e; }
pre { background: #f5f7f9; padding: .6em .8em; font-size: 13px; margin: .3em 0; white-space: pre-wrap; }
.sample { border-left: 3px solid #c3ccd4; padding-left: .8em; margin: .8em 0; }
.passed { border-color: #1b9e77; } details summary { cursor: pointer; }
"""
_END = "<!-- end -->"


def html_page(title: str, body: str) -> str:
    """A page that opens offline. `body` is HTML: whoever makes it has escaped what others wrote."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>{body}</body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """HTML parts under a heading; nothing where all of them are empty."""
    return f"<h2>{escape(title)}</h2>{''.join(parts)}" if any(parts) else ""


def image(png: bytes | None, shows: str) -> str:
    """A picture within the page; nothing for None."""
    if png is None:
        return ""
    return f'<img alt="{escape(shows)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def quiet(text: str) -> str:
    """A paragraph in grey, escaped; nothing for no text."""
    return f'<p class="quiet">{escape(text)}</p>' if text else ""


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
