"""Text of others is seen as it is: no character hides, turns text around, drives a terminal or ends an element."""

from __future__ import annotations

import io
import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from raypoly.analysis.reports.pages import html_page, render
from raypoly.core.tables import ReportTable
from raypoly.core.text import visible


def comparison(**values: object) -> str:
    """A page of these values and no others."""
    names = ("title", "numbers", "sentences", "parts", "rollouts")
    tables = dict.fromkeys(("runs", "later", "keys", "free_keys"), ReportTable((), []))
    return render("comparison.html", **{**dict.fromkeys(names, ""), "picture": b"", **tables, **values})


@pytest.mark.parametrize("hostile", ["<script>x</script>", "a\u202eb", "\" onerror='x'", "&lt;", "**<i>**"])
def test_a_template_takes_no_text_for_markup_and_shows_what_hides(hostile: str) -> None:
    table = ReportTable((hostile,), [(hostile,)])
    body = comparison(title=hostile, sentences=[hostile], parts=[hostile, table], keys=table)
    parser = _Page()
    parser.feed(str(html_page(hostile, body)))
    assert not {"i", "script"} & set(parser.tags[parser.tags.index("main") : -1])
    assert parser.tags.count("script") == 1, "the browser's own"
    assert parser.text.count(visible(hostile)) >= 5
    assert "onerror" not in parser.attributes


def test_every_table_shows_the_text_of_others_that_way() -> None:
    table = ReportTable(("head \u202e",), [("\x1b]0;title\x07 | [red]x \u200b",)], title="[bold]t \x1b[1m")
    out = io.StringIO()
    Console(file=out, width=100).print(table)
    for shown in (out.getvalue(), table.markdown(), comparison(runs=table), "\n".join(table.columns(20, 10))):
        assert not set("\x1b\x07\u202e\u200b") & set(shown)
        assert r"head \u202e" in shown
        assert r"\x1b]0;title\x07" in shown
    assert "[bold]t \\x1b[1m" in out.getvalue()


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.lists(st.one_of(st.text(), st.sampled_from(["</script>", "<!--<script>", "]]>", "&lt;", "\u2028"]))))
def test_json_in_a_page_comes_back_and_closes_nothing(texts: list[str]) -> None:
    shown = render("rollouts.html", said=[], data={"strings": texts, "rows": {}})
    parser = _Page()
    parser.feed(shown)
    assert parser.tags.count("script") == 1
    element = shown.partition('id="rollouts">')[2].partition("</script>")[0]
    assert not set("<>&") & set(element)
    assert json.loads(element)["strings"] == texts


def test_columns_that_do_not_fit_stand_below_and_no_word_is_broken() -> None:
    head = ("scaffold", "tokens a problem", *(f"pass@{k}" for k in (1, 4, 16)), "surface diversity", "followed")
    cells = ("plan_and_solve", "1,770", *["0.297 [0.231, 0.372]"] * 3, "0.55", "0.981")
    table = ReportTable(head, [cells])
    shown = io.StringIO()
    Console(file=shown, width=80).print(table)
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("plan_and_solve" in line for line in lines) == 2, "the first column stands in both parts"
    for cell in (*cells[1:], *(word for name in head for word in name.split())):
        assert cell in shown.getvalue()
    wide = io.StringIO()
    Console(file=wide, width=200).print(table)
    assert wide.getvalue().count("plan_and_solve") == 1
