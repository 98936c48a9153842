"""A page's charts in a browser: values under the pointer, zoom, smoothing, seconds, arms, and a run that goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from raypoly import Run
from raypoly.analysis.reports.comparison_page import show_comparison
from raypoly.analysis.reports.run_page import write_report
from raypoly.core.text import visible
from tests.support.chromium import Chromium, needs_chromium
from tests.support.finished_run import summary, write_finished_run, write_summary
from tests.support.measured_run import HOSTILE_NAME, measured_rows, two_arms, write_measured_run, write_rows

pytestmark = [needs_chromium, pytest.mark.xdist_group("chromium")]

STEPS = 60
WANTED = (
    "reward", "pass@k, validation", "pass@k, test", "strategies in a group", "entropy, nats a token",
    "response length, tokens", "clipped and cut, shares", "gradient norm", "KL to the starting model, nats a token",
    "mismatch of engine and learner, nats", "seconds a step, by stage", "pass@k by k, test",
)  # fmt: skip
_TITLES = "[...document.querySelectorAll('figcaption')].map((each) => each.firstChild.textContent)"
_FIGURE = """[...document.querySelectorAll("figure")].find(
    (each) => each.querySelector("figcaption")?.firstChild.textContent === {!r})"""
_OVER = """(() => {{ const figure = {}, over = figure.querySelector(".u-over"); figure.scrollIntoView();
    const {{ left, top, width, height }} = over.getBoundingClientRect(); return [left, top, width, height]; }})()"""
_LEGEND = """Object.fromEntries([...{}.querySelectorAll(".u-series:not(.beside)")].map(
    (each) => [each.querySelector(".u-label").textContent, each.querySelector(".u-value").textContent]))"""
_ROWS = """(() => {{ const told = {}.querySelector("details"); told.open = true;
    return new Promise((done) => setTimeout(() => done([...told.querySelectorAll("tr")].map(
      (row) => [...row.cells].map((cell) => cell.textContent))), 30)); }})()"""
_INK = """(() => {{ const canvas = {}.querySelector("canvas"), [r, g, b] = {};
    const seen = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let count = 0;
    for (let i = 0; i < seen.length; i += 4)
      count += seen[i + 3] > 200 && Math.abs(seen[i] - r) + Math.abs(seen[i + 1] - g) + Math.abs(seen[i + 2] - b) < 30;
    return count; }})()"""


Followed = tuple[Path, str, subprocess.Popen[str]]


class Charts:
    """The charts of the page that is open."""

    def __init__(self, browser: Chromium) -> None:
        self.browser = browser

    def ask(self, script: str, title: str, *more: object) -> Any:
        return self.browser.run(script.format(_FIGURE.format(title), *more))

    def legend(self, title: str) -> dict[str, str]:
        found: dict[str, str] = self.ask(_LEGEND, title)
        return found

    def numbers(self, title: str) -> list[list[str]]:
        """The table below a chart, of what is in sight."""
        found: list[list[str]] = self.ask(_ROWS, title)
        return found[1:]

    def move(self, title: str, *shares: float) -> None:
        """Point at a share of the chart's width; of two, drag from one to the other."""
        left, top, width, height = self.ask(_OVER, title)
        places = [(left + share * width, top + height / 2) for share in shares]
        self.browser.mouse("moved", *places[0])
        if len(places) > 1:
            self.browser.mouse("pressed", *places[0])
            self.browser.mouse("moved", *places[1])
            self.browser.mouse("released", *places[1])
        self.settle()

    def double_click(self, title: str) -> None:
        left, top, width, height = self.ask(_OVER, title)
        for clicks in (1, 2):
            self.browser.mouse("pressed", left + width / 2, top + height / 2, clicks)
            self.browser.mouse("released", left + width / 2, top + height / 2, clicks)
        self.settle()

    def smooth(self, steps: int) -> None:
        self.browser.run(
            f"""(() => {{ const at = document.getElementById("smoothing"); at.value = {steps};
            at.dispatchEvent(new Event("input")); }})()"""
        )
        self.settle()

    def settle(self) -> None:
        self.browser.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("charts")
    runs = two_arms(
        lambda arm, seed: write_measured_run(folder / f"{arm}-s{seed}", steps=STEPS, objective=arm, seed=seed)
    )
    show_comparison(runs, folder / "comparison.html", Console(quiet=True))
    return {"run": Path(write_report(runs[0])), "comparison": folder / "comparison.html"}


@pytest.fixture
def charts(browser: Chromium, pages: dict[str, Path]) -> Charts:
    browser.open(pages["run"])
    return Charts(browser)


@pytest.mark.parametrize("name", ["run", "comparison"])
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)], ids=["phone by night", "desk by day"])
def test_charts_fit_and_read_on_a_phone_and_a_desk_by_day_and_by_night(
    browser: Chromium, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    browser.open(pages[name], width, dark)
    browser.run("document.getElementById('more').open = true")
    Charts(browser).settle()
    assert browser.run("document.documentElement.scrollWidth") <= width
    beyond = "[...document.querySelectorAll('.plot, .plot *')].map((each) => each.getBoundingClientRect().right)"
    assert browser.run(f"Math.max(...{beyond})") <= width
    texts = "[...document.querySelectorAll('figcaption, .u-legend *')].map((each) => getComputedStyle(each).fontSize)"
    assert min(float(size.removesuffix("px")) for size in browser.run(texts)) >= 12
    drawn = "[...document.querySelectorAll('figure canvas')].map((each) => each.getBoundingClientRect().width)"
    assert min(browser.run(drawn)) > 280
    assert browser.errors == []
    assert browser.asked == []


def test_a_run_s_page_has_a_chart_for_each_kind_of_number(charts: Charts) -> None:
    titles = charts.browser.run(_TITLES)
    assert set(WANTED) <= set(titles)
    assert "judge_agreement" in titles, "whatever columns the run has, folded"
    assert len(titles) == len(set(titles))
    assert not {"probe_mean", "weight_digest"} & set(titles), "what was never a number has none"


def test_each_chart_says_the_values_under_the_pointer(charts: Charts) -> None:
    charts.browser.run("document.getElementById('more').open = true")
    charts.settle()
    for title in charts.browser.run(_TITLES):
        charts.move(title, 0.0)
        begin = charts.legend(title)
        assert "last" not in begin.values(), title
        charts.move(title, 0.999)
        assert next(iter(charts.legend(title).values())) != next(iter(begin.values())), title
        assert all(value not in ("-", "--") for value in begin.values()), title
    rows = measured_rows(STEPS)
    charts.smooth(1)
    charts.move("reward", 0.0)
    assert charts.legend("reward") == {"step": "0", "reward": f"{rows[0]['reward']:.4g}"}
    assert rows[0]["reward"] < 0
    charts.move("reward", 0.999)
    assert charts.legend("reward") == {"step": str(STEPS - 1), "reward": f"{rows[-1]['reward']:.4g}"}
    assert charts.browser.errors == []


def test_each_chart_over_steps_zooms_by_a_drag_and_shows_all_after_a_double_click(charts: Charts) -> None:
    titles = [title for title in charts.browser.run(_TITLES) if title in WANTED and not title.startswith("pass@k")]
    for title in titles:
        before = charts.numbers(title)
        assert len(before) == STEPS
        charts.move(title, 0.5, 0.75)
        zoomed = charts.numbers(title)
        assert zoomed[0][0] in ("30", "31"), title
        assert len(zoomed) == pytest.approx(STEPS / 4, abs=2)
        assert "show all" in charts.ask("{}.querySelector('figcaption button').innerText", title)
        charts.double_click(title)
        assert charts.numbers(title) == before, title
    charts.move("reward", 0.1, 0.2)
    charts.ask("{}.querySelector('figcaption button').click()", "reward")
    charts.settle()
    assert len(charts.numbers("reward")) == STEPS
    assert charts.browser.errors == []


def test_a_finger_zooms_too(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["run"], 390)
    charts = Charts(browser)
    left, top, width, height = charts.ask(_OVER, "reward")
    browser.touch("Start", left + 0.2 * width, top + height / 2)
    for share in (0.3, 0.5, 0.6):
        browser.touch("Move", left + share * width, top + height / 2)
    browser.touch("End")
    charts.settle()
    assert len(charts.numbers("reward")) == pytest.approx(0.4 * STEPS, abs=2)


def test_smoothing_is_a_running_mean_and_changes_the_line(charts: Charts) -> None:
    picture = "{}.querySelector('canvas').toDataURL()"
    rewards = [row["reward"] for row in measured_rows(STEPS)]
    seen = set()
    for steps in (1, 5, 20):
        charts.smooth(steps)
        seen.add(charts.ask(picture, "reward"))
        means = [sum(some) / len(some) for end in range(STEPS) if (some := rewards[max(0, end + 1 - steps) : end + 1])]
        told = [float(row[1]) for row in charts.numbers("reward")]
        assert told == pytest.approx(means, rel=2e-3, abs=1e-4)
    assert len(seen) == 3
    evaluated = charts.numbers("pass@k, validation")
    assert [row[1] for row in evaluated] == ["0.25", "0.35", "0.45", "0.55"], (
        "evaluations are few, and stay as they are"
    )


def test_over_seconds_a_chart_has_the_time_of_training(charts: Charts) -> None:
    charts.browser.run(
        """(() => { const at = document.getElementById("over"); at.value = "seconds";
        at.dispatchEvent(new Event("change")); })()"""
    )
    charts.settle()
    spent = sum(row["seconds"]["total"] for row in measured_rows(STEPS))
    assert charts.numbers("reward")[-1][0] == f"{float(f'{spent / 60:.4g}'):g} min"
    assert charts.numbers("pass@k, validation")[0][0] == "0 s"
    assert len(charts.numbers("pass@k by k, test")) == 7, "a curve over k has no time"
    assert charts.browser.errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_comparison_lays_the_arms_over_each_other(browser: Chromium, pages: dict[str, Path], dark: bool) -> None:
    browser.open(pages["comparison"], dark=dark)
    charts = Charts(browser)
    strokes = browser.run("getComputedStyle(document.documentElement).getPropertyValue('--lines')").split()
    colours = [[int(stroke[i : i + 2], 16) for i in (1, 3, 5)] for stroke in strokes]
    for title in ("reward", "entropy, nats a token", "gradient norm", "ratio_clipped_low", "total, seconds"):
        assert list(charts.legend(title)) == ["step", "grpo", "poly_epo"]
        assert all(charts.ask(_INK, title, colour) > 60 for colour in colours[:2]), title
        assert charts.ask(_INK, title, colours[4]) == 0
    charts.smooth(1)
    rows = [[row["reward"] for row in measured_rows(STEPS, "poly_epo", seed)] for seed in (0, 1)]
    means = [sum(both) / 2 for both in zip(*rows, strict=True)]
    assert [float(row[2]) for row in charts.numbers("reward")] == pytest.approx(means, rel=2e-3, abs=1e-4)
    charts.ask("[...{}.querySelectorAll('.u-series th')].find((it) => it.textContent === 'grpo').click()", "reward")
    charts.settle()
    assert charts.ask(_INK, "reward", colours[0]) == 0, "a click on its name hides an arm"
    assert charts.ask(_INK, "reward", colours[1]) > 60
    assert browser.errors == []
    assert browser.asked == []


def test_hostile_names_of_numbers_and_runs_stay_text(browser: Chromium, tmp_path: Path) -> None:
    name = "<b onclick=alert(1)>&lt;"
    runs = [Run(write_measured_run(tmp_path / f"{name}{arm}", objective=arm)) for arm in ("grpo", "poly_epo")]
    page = tmp_path / "comparison.html"
    show_comparison(runs, page, Console(quiet=True))
    for place, shown in ((page, HOSTILE_NAME.partition("/")[2] + ", objective"), (write_report(runs[0]), HOSTILE_NAME)):
        browser.open(Path(place))
        browser.run("document.getElementById('more').open = true")
        charts = Charts(browser)
        charts.settle()
        assert visible(shown) in browser.run(_TITLES)
        assert charts.legend(visible(shown))
        assert browser.run("document.querySelectorAll('#charts img, #more img, #charts b, #more b, h1 b').length") == 0
        assert "\u202e" not in browser.run("document.body.textContent")
        assert browser.errors == []


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    """A run's folder, the address of its page, and the process of `raypoly watch`."""
    folder = write_finished_run(tmp_path / "run", "grpo", False, f"train.steps={STEPS}")
    write_rows(folder, measured_rows(STEPS)[:20])
    command = [sys.executable, "-m", "raypoly.cli", "watch", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as watcher:
        assert watcher.stderr is not None
        yield folder, watcher.stderr.readline().split()[3], watcher
        watcher.kill()


def waited_for(browser: Chromium, script: str) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if browser.run(script):
            return True
        time.sleep(0.1)
    return False


def test_a_followed_page_grows_with_its_run_and_keeps_zoom_and_search(browser: Chromium, followed: Followed) -> None:
    folder, address, _ = followed
    browser.open(address)
    charts = Charts(browser)
    assert "20 of 60 steps" in browser.run("document.getElementById('facts').textContent")
    assert len(charts.numbers("reward")) == 20
    charts.move("entropy, nats a token", 0.0, 0.5)
    zoomed = [row[0] for row in charts.numbers("entropy, nats a token")]
    browser.search("builtin")
    before = browser.run("document.getElementById('rest').textContent")
    assert "Not evaluated on the test split yet" in before

    with (folder / "metrics.jsonl").open("a") as file:  # a step's line comes in two writes
        lines = [json.dumps(row) for row in measured_rows(STEPS)[20:40]]
        file.write("\n".join(lines)[:-10])
        file.flush()
        assert waited_for(browser, "document.getElementById('facts').textContent.includes('39 of 60 steps')")
        file.write(f"{lines[-1][-10:]}\n")
    assert waited_for(browser, "document.getElementById('facts').textContent.includes('40 of 60 steps')")
    assert len(charts.numbers("reward")) == 40
    assert [row[0] for row in charts.numbers("entropy, nats a token")] == zoomed, "the zoom stays"
    assert browser.run("document.getElementById('rest').textContent") == before, "nothing else was committed"

    browser.run("window.same = 1")
    write_summary(folder, {**summary("grpo"), "state": "running"})
    assert waited_for(browser, "!document.getElementById('rest').textContent.includes('Not evaluated on the test')")
    assert waited_for(browser, f"{_TITLES}.includes('pass@k, test')")
    titles = browser.run(_TITLES)
    assert titles.index("reward") < titles.index("pass@k, test") < titles.index("entropy, nats a token"), "in its place"
    assert browser.run("window.same") == 1, "the page was not loaded again"
    assert browser.run("document.getElementById('search').value") == "builtin"
    assert [row[0] for row in charts.numbers("entropy, nats a token")] == zoomed
    assert {asked.rpartition("/")[0] for asked in browser.asked} == {address.rstrip("/")}
    assert browser.errors == []


def test_a_followed_page_says_what_is_wrong_and_goes_on(browser: Chromium, followed: Followed) -> None:
    folder, address, watcher = followed
    browser.open(address)
    said = "document.getElementById('live').textContent"
    sound = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(b"{half\n" + sound)
    assert waited_for(browser, f"{said}.includes('metrics.jsonl is damaged')")
    assert len(Charts(browser).numbers("reward")) == 20, "the last known stay"
    (folder / "metrics.jsonl").write_bytes(sound)
    assert waited_for(browser, f"{said}.includes('This page follows the run')")
    watcher.terminate()
    assert watcher.wait(60) == 0
    assert waited_for(browser, f"{said}.includes('raypoly watch has ended')")
