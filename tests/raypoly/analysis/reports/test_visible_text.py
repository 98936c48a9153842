"""Text of others is seen as it is: no character hides, turns text around, drives a terminal or ends an element."""

from __future__ import annotations

import io
import json
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from raypoly.core.tables import ReportTable
from raypoly.core.visible_text import html_text, json_element, visible

SEEN = {
    "if user != 'admin\u202e\u2066'": r"if user != 'admin\u202e\u2066'",
    "a\u200bb\u200d\ufeffc\u00add": r"a\u200bb\u200d\ufeffc\xadd",
    "\x1b[2J\x07\x9b\x7f": r"\x1b[2J\x07\x9b\x7f",
    "x\u00a0=\u3000\u2028y": r"x\xa0=\u3000\u2028y",
    "\u3164 = 1": r"\u3164 = 1",
    "tag \U000e0041": r"tag \U000e0041",
    "ok\U000e0148\u180b": r"ok\U000e0148\u180b",
    "half \ud800": r"half \ud800",
    "one\r\ntwo\rthree\tfour\n": "one\ntwo\\rthree\tfour\n",
    "Größe, 数, 🙂, pass@8 ±0.1": "Größe, 数, 🙂, pass@8 ±0.1",
}


@pytest.mark.parametrize(("written", "seen"), SEEN.items())
def test_a_character_that_hides_or_commands_is_seen_as_its_escape(written: str, seen: str) -> None:
    assert visible(written) == seen
    assert unescape(html_text(written)) == seen


def test_every_table_shows_the_text_of_others_that_way() -> None:
    table = ReportTable(("head \u202e",), [("\x1b]0;title\x07 | [red]x \u200b",)], title="[bold]t \x1b[1m")
    out = io.StringIO()
    Console(file=out, width=100).print(table)
    for shown in (out.getvalue(), table.markdown(), table.html(), "\n".join(table.columns(20, 10))):
        assert not set("\x1b\x07\u202e\u200b") & set(shown)
        assert r"head \u202e" in shown
        assert r"\x1b]0;title\x07" in shown
    assert "[bold]t \\x1b[1m" in out.getvalue()


class _Script(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.lists(st.one_of(st.text(), st.sampled_from(["</script>", "<!--<script>", "]]>", "&lt;", "\u2028"]))))
def test_json_in_a_page_comes_back_and_closes_nothing(texts: list[str]) -> None:
    element = json_element("data", texts)
    assert not set("<>&") & set(element.removeprefix('<script type="application/json" id="data">')[:-9])
    parser = _Script()
    parser.feed(element)
    assert parser.tags == ["script"]
    assert json.loads(parser.text) == texts


def test_columns_that_do_not_fit_stand_below_and_no_word_is_broken() -> None:
    head = ("program", "tokens a problem", *(f"pass@{k}" for k in (1, 4, 16)), "surface diversity", "followed")
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
