"""The pages in a browser: on a phone and a desk, in the dark, printed, by keyboard. What others wrote does nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from raypoly import Run
from raypoly.analysis.reports.comparison_page import show_comparison
from raypoly.analysis.reports.pages import html_page
from raypoly.analysis.reports.rollout_browser import MOST, RolloutSample, rollout_browser
from raypoly.analysis.reports.run_page import write_report
from tests.support.chromium import Chromium, needs_chromium
from tests.support.drafted_run import PLAN, write_drafted_run
from tests.support.finished_run import HOSTILE, write_finished_run
from tests.support.long_run import HIDDEN, SHOWN, write_long_run
from tests.support.measured_run import measured_rows, two_arms, write_rows

pytestmark = [needs_chromium, pytest.mark.xdist_group("chromium")]

MEBIBYTES = 1 << 20
_COUNT = "document.getElementById('count').textContent"
_SHOWN = "document.getElementById('shown').innerText"
_VERDICTS = "[...document.querySelectorAll('.rollout b')].map((each) => each.textContent)"
_PROBLEMS = "[...document.querySelectorAll('#problems button span:first-child')].map((each) => each.textContent)"
_CHOOSE = """[...document.querySelectorAll("#problems button")].find(
    (each) => each.firstChild.textContent === {0!r}).click()"""
_PLACED = """[...document.querySelectorAll(".rollout")].map((each) => [
    each.querySelector("b").textContent, each.querySelector("span").textContent.match(/(draft|attempt) (\\d+)/)?.[0],
    Number(each.className.match(/below-(\\d)/)?.[1] ?? 0), each.classList.contains("quiet")])"""
_FACTS = "[...document.querySelectorAll('.rollout > div:first-child')].map((each) => each.textContent)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    arms = two_arms(lambda arm, seed: write_long_run(folder / f"{arm}-s{seed}", arm, f"train.seed={seed}"))
    show_comparison(arms, folder / "comparison.html", Console(quiet=True))
    return {
        "run": Path(write_report(Run(write_finished_run(folder / "mine")))),
        "long": Path(write_report(arms[0])),
        "comparison": folder / "comparison.html",
        "drafted": Path(write_report(Run(write_drafted_run(folder)))),
    }


@pytest.mark.parametrize("name", ["run", "long", "comparison"])
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)], ids=["phone by night", "desk by day"])
def test_nothing_overflows_or_asks_the_network(
    browser: Chromium, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    browser.open(pages[name], width, dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("Math.max(...[...document.querySelectorAll('main *')].filter((each) => !each.closest('.wide'))"
                       ".map((each) => each.getBoundingClientRect().right))") <= width  # fmt: skip
    lefts = set(
        browser.run("[...document.querySelectorAll('figure')].map((each) => each.getBoundingClientRect().left)")
    )
    assert (len(lefts) == 1) == (width == 390), "panels are stacked on a phone, and beside each other elsewhere"
    light = "getComputedStyle(document.body)"
    text, page = (browser.run(f"{light}.{of}.match(/\\d+/g).map(Number)") for of in ("color", "backgroundColor"))
    assert (sum(text) > sum(page)) == dark
    assert browser.errors == []
    assert browser.asked == []


def test_a_problem_is_shown_and_found_by_its_task(browser: Chromium, tmp_path: Path) -> None:
    facts = dict.fromkeys(("prompt", "detail", "strategy", "label"), "") | {"status": "passed", "source": "test"}
    rows = [
        {
            **facts,
            "problem": f"p-{word}",
            "statement": f"# Sum the {word}.\ndef f(n):",
            "text": "1",
            "advantage": 0,
            "step": 0,
        }
        for word in ("squares", "cubes")
    ]
    page = tmp_path / "page.html"
    page.write_text(html_page("told", rollout_browser({"run": RolloutSample(rows, [])})))
    browser.open(page)
    assert browser.run(_PROBLEMS) == ["Sum the cubes.", "Sum the squares."]
    assert "# Sum the cubes.\ndef f(n):" in browser.run(_SHOWN)
    browser.run("(() => { const at = document.getElementById('search'); at.value = 'SQUARES';"
                "at.dispatchEvent(new Event('input')); })()")  # fmt: skip
    assert browser.run(_PROBLEMS) == ["Sum the squares."]
    assert "p-squares" in browser.run(_SHOWN)
    assert browser.errors == []


def test_the_policy_of_a_page_refuses_every_request(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["long"])
    refused = "fetch('https://example.org/').then(() => 'sent', () => 'refused')"
    assert browser.run(refused) == "refused"
    image = "new Promise((done) => { const it = new Image(); it.onload = it.onerror = (e) => done(e.type); it.src = "
    assert browser.run(f"{image}'http://127.0.0.1:9/x.png'; }})") == "error"
    assert browser.run("(() => { const it = document.createElement('script'); it.textContent = 'window.ran = 1';"
                       "document.body.append(it); return window.ran; })()") is None  # fmt: skip


def test_what_a_model_wrote_is_text(browser: Chromium, pages: dict[str, Path]) -> None:
    assert not set("\u202e\u200b\x1b") & set(pages["long"].read_text()), "not even in the JSON"
    browser.open(pages["long"])
    assert SHOWN in browser.run(_SHOWN)
    assert HIDDEN[2] not in browser.run("document.body.innerText")
    assert browser.run("document.querySelectorAll('#shown pre b, #shown pre script').length") == 0
    browser.open(pages["run"])
    assert HOSTILE in browser.run(_SHOWN)


def test_letters_that_are_read_from_right_to_left_turn_no_code_around(browser: Chromium, tmp_path: Path) -> None:
    code = "x = '\u05d0' , 1 == 2  # \u05d0"
    row = {"problem": "one", "prompt": "", "text": code, "status": "wrong", "detail": code, "strategy": "", "label": "",
           "advantage": 0.0, "step": 0, "source": "test"}  # fmt: skip
    page = tmp_path / "page.html"
    body = rollout_browser({"mine": RolloutSample([row], [])})
    page.write_text(html_page("mine", body))
    browser.open(page)
    for shown in ("#shown pre", "#shown .detail"):
        lefts = browser.run(
            f"""(() => {{ const found = [], range = document.createRange(), within = document.querySelector({shown!r});
            const texts = document.createTreeWalker(within, NodeFilter.SHOW_TEXT);
            while (texts.nextNode()) for (let i = 0; i < texts.currentNode.length; i++) {{
              range.setStart(texts.currentNode, i);
              range.setEnd(texts.currentNode, i + 1);
              found.push(range.getBoundingClientRect().left);
            }} return found; }})()"""
        )
        assert len(lefts) == len(code)
        assert lefts == sorted(lefts)


def test_filters_sorting_and_search_find_rollouts(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["long"])
    assert browser.run(_COUNT).startswith("128 of 128 rollouts")
    browser.pick("status", "passed")
    assert set(browser.run(_VERDICTS)) == {"passed"}
    browser.pick("strategy", "recursion")
    browser.pick("source", "test")
    assert "strategy by execution: recursion · by the judge: 2" in browser.run(_SHOWN)
    assert "advantage" not in browser.run(_SHOWN), "an evaluation has none"
    for control in ("status", "strategy"):
        browser.pick(control, "all")
    browser.pick("order", "most passed")
    counts = browser.run(
        "[...document.querySelectorAll('#problems span + span')].map((it) => parseInt(it.textContent))"
    )
    assert counts == sorted(counts, reverse=True)
    browser.pick("sort", "verdict")
    verdicts = browser.run(_VERDICTS)
    assert verdicts == sorted(verdicts)
    browser.search("TEST-7")
    assert browser.run(_PROBLEMS) == ["test-7"]
    assert browser.run(_COUNT) == "8 of 128 rollouts, 1 problems"
    browser.search("no program has this")
    assert browser.run(_SHOWN) == "No rollout is like this."


def test_a_comparison_shows_two_runs_rollouts_of_a_problem(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["comparison"])
    browser.search("test-3")
    assert browser.run(_COUNT).startswith("32 of "), "eight of each run"
    assert {"grpo-s0", "grpo-s1"} <= set(browser.run(_SHOWN).split())
    browser.pick("run", "poly_epo-s0")
    assert browser.run(_COUNT).startswith("8 of ")


def test_all_of_it_can_be_reached_by_keyboard(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["long"])
    seen: list[str] = []
    for _ in range(60):
        browser.press("Tab")
        seen.append(browser.run("document.activeElement.id || document.activeElement.tagName"))
        if seen[-1] == "BUTTON":
            break
    assert {"search", "source", "status", "strategy", "order", "sort", "SUMMARY", "BUTTON"} <= set(seen)
    browser.press("Tab")
    browser.press("Enter")
    chosen = browser.run("document.querySelector('#problems [aria-current=true] span').textContent")
    assert chosen == browser.run(_PROBLEMS)[1] == browser.run("document.querySelector('#shown h3').textContent")
    browser.run("document.querySelector('figure summary').focus()")
    browser.press("Enter")
    assert browser.run("document.querySelector('figure details').open")
    unscoped = browser.run("document.querySelectorAll('th:not([scope]), img:not([alt]), select:not(label > *)').length")
    assert unscoped == 0


def test_a_printed_page_is_dark_on_white_and_has_no_controls(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["long"], dark=True, printed=True)
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("document.querySelector('.filters').getBoundingClientRect().height") == 0
    assert len(browser.run(_VERDICTS)) > 0
    assert browser.pdf().startswith(b"%PDF")


def test_a_page_of_64_000_rollouts_is_of_bounded_size_and_opens_in_three_seconds(
    browser: Chromium, tmp_path: Path
) -> None:
    """That it searches at once follows from what it holds."""
    folder = write_long_run(tmp_path / "long", steps=250, groups=8, rollouts=32, tests=500)
    write_rows(folder, measured_rows(250))
    page = Path(write_report(Run(folder)))
    assert page.stat().st_size < 60 * MEBIBYTES
    browser.open(page)
    assert browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd") < 3000
    shown = 50 * 3 * 32 + 4000  # three groups of 50 steps, and the evaluation
    assert shown <= 2 * MOST
    assert browser.run(_COUNT).startswith(f"{shown:,} of {shown:,} rollouts")
    assert browser.run("document.querySelectorAll('*').length") < 10_000, "only what is looked at has elements"
    browser.search("test-31")
    assert browser.run(_PROBLEMS)[0] == "test-31"


@pytest.fixture
def drafted(browser: Chromium, pages: dict[str, Path]) -> Chromium:
    browser.open(pages["drafted"])
    browser.pick("source", "training")
    return browser


def placed(browser: Chromium, problem: str) -> Any:
    browser.run(_CHOOSE.format(problem))
    return browser.run(_PLACED)


def test_attempts_stand_below_their_drafts(drafted: Chromium) -> None:
    planned = placed(drafted, "one")
    assert planned[:6] == [
        ["plan", "draft 0", 0, False],
        ["passed", "attempt 0", 1, False],
        ["passed", "attempt 1", 1, False],
        ["plan", "draft 1", 0, False],
        ["wrong", "attempt 2", 1, False],
        ["error", "attempt 3", 0, False],
    ]
    assert [row[2] for row in planned[6:]] == [0] * 4, "step 1 of this group has no drafts"
    tried = placed(drafted, "four")
    assert [row[:3] for row in tried[:5]] == [
        ["try", "draft 0", 0], ["try", "draft 2", 1], ["passed", "attempt 0", 2], ["try", "draft 1", 0],
        ["passed", "attempt 1", 1],
    ]  # fmt: skip
    assert [row[:3] for row in tried[-2:]] == [["plan", "draft 0", 0], ["plan", "draft 1", 0]], "no attempts"
    assert drafted.errors == []


def test_a_draft_says_what_became_of_it(drafted: Chromium) -> None:
    placed(drafted, "one")
    plan, attempt = drafted.run(_FACTS)[:2]
    assert plan == (
        "plan · draft 0 · 2 of 2 attempts passed · 7 tokens, cut by its limit · advantage +0.750 · training, step 0"
    )
    assert attempt.endswith("from draft 0")
    placed(drafted, "four")
    facts = drafted.run(_FACTS)
    assert facts[0].startswith("try · draft 0")
    assert "advantage" not in facts[0]
    assert facts[4].endswith("from draft 1")


def test_problems_are_counted_by_attempts_alone(drafted: Chromium) -> None:
    told = "[...document.querySelectorAll('#problems button')].map((each) => each.lastChild.textContent)"
    assert drafted.run(told) == ["2 of 4 here passed", "4 of 8 here passed"]
    assert drafted.run(_COUNT) == "19 of 35 rollouts, 2 problems"
    drafted.pick("role", "plan")
    assert drafted.run(told) == ["drafts: 2", "drafts: 2"]


def test_a_search_finds_drafts_and_a_filter_keeps_them_above_what_it_finds(drafted: Chromium) -> None:
    drafted.search(PLAN.upper())
    assert drafted.run(_COUNT).startswith("2 of 35 rollouts")
    assert [row[:2] for row in placed(drafted, "one")] == [["plan", "draft 0"]]
    drafted.search("")
    drafted.pick("status", "passed")
    assert placed(drafted, "four") == [
        ["try", "draft 0", 0, True], ["try", "draft 2", 1, True], ["passed", "attempt 0", 2, False],
        ["try", "draft 1", 0, True], ["passed", "attempt 1", 1, False],
    ], "drafts beside the found ones are grey"  # fmt: skip


def test_each_order_keeps_attempts_below_their_drafts(drafted: Chromium) -> None:
    for order in ("advantage", "length", "verdict", "strategy"):
        drafted.pick("sort", order)
        found = placed(drafted, "four")
        names = [row[1] for row in found]
        assert len(found) == 9
        assert names.index("draft 0") < names.index("draft 2") < names.index("attempt 0")


def test_a_button_jumps_to_the_draft(drafted: Chromium) -> None:
    placed(drafted, "one")
    drafted.run("document.querySelectorAll('.jump')[2].click()")
    assert drafted.run("document.activeElement.querySelector('div').textContent").startswith("plan · draft 1")
