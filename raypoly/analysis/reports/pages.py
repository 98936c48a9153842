"""Pages: HTML from the templates beside this module, and places in Markdown pages that somebody else writes.

page = html_page("raypoly: mine", render("run.html", run=run, ...))
page = fill_place(page, "experiment", "objectives", tables, "docs/results/objectives.md")

Every text that a template of HTML shows passes `raypoly.core.text.visible` and is escaped, in attributes too. So what a
model, a judge or a user wrote can't become markup, and hides nothing.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from raypoly.core.errors import UsageError
from raypoly.core.text import visible

_TEMPLATES = Path(__file__).with_name("templates")
_END = "<!-- end -->"
_LICENCE = "uplot/LICENSE"  # of what follows it, which asks for it in every copy
_SCRIPTS = (_LICENCE, "uplot/uPlot.iife.min.js", "rollout_browser.js", "charts.js")
_STYLES = ("uplot/uPlot.min.css", "page.css")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"base64": _base64, "sha256": _sha256}
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return made


def _shown(value: Any) -> Any:
    # what a macro made is Markup, whose texts have passed here already
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def render(template: str, **values: Any) -> Markup:
    """A template's text. In HTML every value is escaped, except `Markup` from another `render`."""
    return Markup(_environment().get_template(template).render(values))


def html_page(title: str, body: Markup, live: str = "") -> str:
    """A page in one file. Its policy forbids all scripts but its own, and all requests.

    `live`: of a page that follows a run, which of its states this is; it may ask its own server.
    """
    # Markup: these are the project's own files, and their hashes have to be those of the very text
    script, style = (Markup("\n".join(map(_part, names))) for names in (_SCRIPTS, _STYLES))
    return render("page.html", title=title, body=body, script=script, style=style, live=live)


def _part(name: str) -> str:
    text = (_TEMPLATES / name).read_text("utf-8")
    return f"/* {text.strip()} */" if name == _LICENCE else text


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _sha256(text: str) -> str:
    return _base64(hashlib.sha256(text.encode()).digest())


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
