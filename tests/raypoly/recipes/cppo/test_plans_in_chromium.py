"""A CPPO plan in a browser: J, its branches with their methods, both advantages, and code on demand."""

from __future__ import annotations

from pathlib import Path

import pytest

from raypoly import Run
from raypoly.analysis.reports.run_page import write_report
from tests.raypoly.recipes.cppo.planned_run import FIRST, write_planned_run
from tests.support.chromium import Chromium, needs_chromium
from tests.support.finished_run import HOSTILE

pytestmark = [needs_chromium, pytest.mark.xdist_group("chromium")]

_HEADS = "[...document.querySelectorAll('.rollout > div:has(> b)')].map((each) => each.textContent)"
_METHODS = "[...document.querySelectorAll('.rollout > .method')].map((each) => each.textContent)"
_CODE = "[...document.querySelectorAll('.rollout > details')].filter((each) => each.textContent.startsWith('code'))"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_report(Run(write_planned_run(tmp_path_factory.mktemp("runs")))))


@pytest.fixture
def browser(opened: Chromium, page: Path) -> Chromium:
    opened.open(page)
    opened.pick("source", "training")
    opened.run("[...document.querySelectorAll('#problems button')].at(-1).click()")
    return opened


def test_a_plan_stands_above_its_branches_with_j_and_both_advantages(browser: Chromium) -> None:
    shown = browser.run(_HEADS)
    assert shown[0] == (
        "plan, accepted · draft 0 · J = 1, p = 1 · keeps the contract · 2 of 2 attempts passed · 7 tokens · "
        "advantage +0.707 · training, step 0"
    )
    assert shown[3] == (
        "plan, refused · draft 1 · J = 0, p = 0 · breaches the contract: missing, extra · 0 of 2 attempts passed · "
        "7 tokens · advantage -0.707 · training, step 0"
    )
    ends = "3 tokens · reward {} · advantage +0.000 · training, step 0 from draft {}"
    assert [*shown[1:3], *shown[4:6]] == [
        f"passed · attempt 0 · strategy by execution: for · method followed: yes · {ends.format(1, 0)}",
        f"passed · attempt 1 · strategy by execution: for · method followed: no · {ends.format(1, 0)}",
        f"wrong · attempt 2 · strategy by execution: none · method followed: unknown · {ends.format(0, 1)}",
        f"error · attempt 3 · strategy by execution: none · {ends.format(0, 1)}",
    ]
    assert browser.run(_METHODS)[1:] == ["B: Use recursion.", "A: Sum them.", "B: its plan has no method here"]
    assert browser.errors == []


def test_plans_without_attempts_stand_alone(browser: Chromium) -> None:
    browser.run("document.querySelector('#problems button').click()")
    plans = [head for head in browser.run(_HEADS) if head.startswith("plan")]
    assert [plan.partition(" · ")[0] for plan in plans] == ["plan, accepted", "plan, refused"]
    assert "attempts passed" not in "".join(plans)


def test_code_is_shown_on_demand_and_where_it_is_searched_for(browser: Chromium) -> None:
    assert browser.run(f"{_CODE}.map((each) => each.open)") == [False] * 4
    assert browser.run("document.querySelectorAll('#shown pre').length") == 2 + 4, "plans, and step 1 without drafts"
    browser.run(f"{_CODE}[0].querySelector('summary').click()")
    assert "total += n" in browser.run(_filled(0))
    browser.search("total += n")
    assert "total += n" in browser.run(_filled(0))


def test_filters_find_plans_by_j_and_attempts_by_what_they_did(browser: Chromium) -> None:
    browser.pick("gate", "refused")
    assert {head.partition(" · ")[0] for head in browser.run(_HEADS)} == {"plan, refused"}
    browser.pick("gate", "all")
    browser.pick("followed", "no")
    assert [head.partition(" · ")[0] for head in browser.run(_HEADS)] == ["plan, accepted", "passed"]
    browser.pick("followed", "all")
    browser.search("USE RECURSION")
    assert browser.run(_METHODS) == ["B: Use recursion."]


def test_what_a_plan_says_is_text(browser: Chromium, page: Path) -> None:
    assert "\u202e" not in page.read_text()
    assert browser.run(_METHODS)[0] == FIRST.replace("\u202e", r"\u202e")
    assert HOSTILE in browser.run("document.querySelector('.rollout pre').innerText")
    assert browser.run("document.querySelectorAll('#shown script').length") == 0


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overflows(browser: Chromium, page: Path, width: int, dark: bool) -> None:
    browser.open(page, width, dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.errors == browser.asked == []


def _filled(place: int) -> str:
    """A script whose value is the code of the folded part, as soon as it has some."""
    text = f"{_CODE}[{place}].querySelector('pre')?.textContent"
    return f"(async () => {{ while (!{text}) await new Promise((go) => setTimeout(go)); return {text}; }})()"
