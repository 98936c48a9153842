"""The page's browser of rollouts: problems, the rollouts of one, filters, sorting and search.

    body += rollout_browser({run.name: sample_rollouts(run, most=MOST)})
    page = html_page(title, body, packaged_text(BROWSER_SCRIPT))

The rollouts are in the page once, as JSON by columns whose texts are numbers of a common list. The script makes the
elements that are looked at, from text alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raypoly.analysis.reports.pages import quiet
from raypoly.analysis.reports.rollout_sample import RolloutSample
from raypoly.core.visible_text import json_element, visible

BROWSER_SCRIPT = "rollout_browser.js"
MOST = 6000
"""The most rollouts of evaluations in a page, over all its runs, and of training as well."""
_CHARACTERS = 16_000_000
"""About the most characters of all texts in a page; where there are more, the longest texts are shortened."""
_LONGEST, _LEAST = 1 << 16, 1 << 10
"""Characters of one text, at most and after shortening."""
_NUMBERS = ("advantage", "step", "slot", "place", "parent", "tokens", "p", "reward")

_OF_DRAFTS = """<label>role<select id="role"></select></label><label>gate<select id="gate"></select></label>
<label>method followed<select id="followed"></select></label>"""
_CONTROLS = """<div class="filters">
<label class="search">search programs, tests, names<input type="search" id="search"></label>
<label>from<select id="source"></select></label><label>run<select id="run"></select></label>
<label>verdict<select id="status"></select></label><label>strategy by execution<select id="strategy"></select></label>
<label>problems by<select id="order"><option>name</option><option>fewest passed</option><option>most passed</option>
<option>most rollouts</option></select></label>
<label>rollouts by<select id="sort"><option>step</option><option>verdict</option><option>strategy</option>
<option>advantage</option><option>length</option></select></label></div>
<p class="quiet" id="count" role="status">This list needs scripts.</p>
<div class="browser"><nav aria-label="problems"><ul class="problems" id="problems"></ul></nav>
<div class="rollouts" id="shown"></div></div>"""


def rollout_browser(samples: Mapping[str, RolloutSample]) -> str:
    """HTML, by the runs' names; what was taken, alone, where no run has a rollout."""
    alone = len(samples) == 1
    told = {name: " ".join(sample.said) for name, sample in samples.items()}
    said = "".join(quiet(text if alone else f"{name}: {text}") for name, text in told.items())
    rows = [{**row, "run": name} for name, sample in samples.items() for row in sample.rows]
    if not rows:
        return said
    texts = {value for row in rows for name, value in row.items() if name not in _NUMBERS}
    shown = _shortened({text: visible(text) for text in texts})
    strings: dict[str, int] = {}
    columns: dict[str, list[Any]] = {name: [] for row in rows for name in row}
    for row in rows:
        for name, column in columns.items():
            if name in _NUMBERS:
                column.append(row.get(name))
            else:
                column.append(strings.setdefault(shown[row[name]] if name in row else "", len(strings)))
    controls = _CONTROLS.replace("<label>strategy", f"{_OF_DRAFTS}<label>strategy") if "role" in columns else _CONTROLS
    return said + controls + json_element("rollouts", {"strings": list(strings), "rows": columns})


def _shortened(texts: Mapping[str, str]) -> dict[str, str]:
    """Texts by what they stand for; of the longest only beginning and end, so that all are not too many characters."""
    longest = _LONGEST
    while longest > _LEAST and sum(min(len(text), longest) for text in texts.values()) > _CHARACTERS:
        longest //= 2
    half = longest // 2
    return {
        name: text
        if len(text) <= longest
        else f"{text[:half]}\n[... {len(text) - longest:,} characters are left out ...]\n{text[-half:]}"
        for name, text in texts.items()
    }
