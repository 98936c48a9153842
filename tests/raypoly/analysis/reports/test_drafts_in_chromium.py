"""The browser of rollouts shows drafts above what was made from them, finds them, and jumps to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raypoly import Run
from raypoly.analysis.reports.run_page import write_report
from tests.support.chromium import Chromium, needs_chromium
from tests.support.drafted_run import PLAN, write_drafted_run

pytestmark = [needs_chromium, pytest.mark.xdist_group("chromium")]

_CHOOSE = """[...document.querySelectorAll("#problems button")].find(
    (each) => each.firstChild.textContent === {0!r}).click()"""
_PLACED = """[...document.querySelectorAll(".rollout")].map((each) => [
    each.querySelector("b").textContent, each.querySelector("span").textContent.match(/(draft|attempt) (\\d+)/)?.[0],
    Number(each.className.match(/below-(\\d)/)?.[1] ?? 0), each.classList.contains("quiet")])"""
_FACTS = "[...document.querySelectorAll('.rollout > div:first-child')].map((each) => each.textContent)"
_COUNT = "document.getElementById('count').textContent"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_report(Run(write_drafted_run(tmp_path_factory.mktemp("runs")))))


@pytest.fixture
def browser(opened: Chromium, page: Path) -> Chromium:
    opened.open(page)
    opened.pick("source", "training")
    return opened


def placed(browser: Chromium, problem: str) -> Any:
    browser.run(_CHOOSE.format(problem))
    return browser.run(_PLACED)


def test_attempts_stand_below_their_drafts(browser: Chromium) -> None:
    planned = placed(browser, "one")
    assert planned[:6] == [
        ["plan", "draft 0", 0, False],
        ["passed", "attempt 0", 1, False],
        ["passed", "attempt 1", 1, False],
        ["plan", "draft 1", 0, False],
        ["wrong", "attempt 2", 1, False],
        ["error", "attempt 3", 0, False],
    ]
    assert [row[2] for row in planned[6:]] == [0] * 4, "step 1 of this group has no drafts"
    tried = placed(browser, "four")
    assert [row[:3] for row in tried[:5]] == [
        ["try", "draft 0", 0], ["try", "draft 2", 1], ["passed", "attempt 0", 2], ["try", "draft 1", 0],
        ["passed", "attempt 1", 1],
    ]  # fmt: skip
    assert [row[:3] for row in tried[-2:]] == [["plan", "draft 0", 0], ["plan", "draft 1", 0]], "no attempts"
    assert browser.errors == []


def test_a_draft_says_what_became_of_it(browser: Chromium) -> None:
    placed(browser, "one")
    plan, attempt = browser.run(_FACTS)[:2]
    assert plan == (
        "plan · draft 0 · 2 of 2 attempts passed · 7 tokens, cut by its limit · advantage +0.750 · training, step 0"
    )
    assert attempt.endswith("from draft 0")
    placed(browser, "four")
    facts = browser.run(_FACTS)
    assert "try · draft 0 · public tests: wrong" in facts[0]
    assert "advantage" not in facts[0]
    assert facts[4].endswith("is draft 1")


def test_problems_are_counted_by_attempts_alone(browser: Chromium) -> None:
    told = "[...document.querySelectorAll('#problems button')].map((each) => each.lastChild.textContent)"
    assert browser.run(told) == ["2 of 4 here passed", "4 of 8 here passed"]
    assert browser.run(_COUNT) == "19 of 35 rollouts, 2 problems"
    browser.pick("role", "plan")
    assert browser.run(told) == ["drafts: 2", "drafts: 2"]


def test_a_search_finds_drafts_and_a_filter_keeps_them_above_what_it_finds(browser: Chromium) -> None:
    browser.search(PLAN.upper())
    assert browser.run(_COUNT).startswith("2 of 35 rollouts")
    assert [row[:2] for row in placed(browser, "one")] == [["plan", "draft 0"]]
    browser.search("")
    browser.pick("status", "passed")
    assert placed(browser, "four") == [
        ["try", "draft 0", 0, True], ["try", "draft 2", 1, True], ["passed", "attempt 0", 2, False],
        ["try", "draft 1", 0, True], ["passed", "attempt 1", 1, False],
    ], "drafts beside the found ones are grey"  # fmt: skip
    browser.pick("status", "public tests: passed")
    assert placed(browser, "four") == [["try", "draft 1", 0, False]]


def test_each_order_keeps_attempts_below_their_drafts(browser: Chromium) -> None:
    for order in ("advantage", "length", "verdict", "strategy"):
        browser.pick("sort", order)
        found = placed(browser, "four")
        names = [row[1] for row in found]
        assert len(found) == 9
        assert names.index("draft 0") < names.index("draft 2") < names.index("attempt 0")


def test_a_button_jumps_to_the_draft(browser: Chromium) -> None:
    placed(browser, "one")
    browser.run("document.querySelectorAll('.jump')[2].click()")
    assert browser.run("document.activeElement.querySelector('div').textContent").startswith("plan · draft 1")
