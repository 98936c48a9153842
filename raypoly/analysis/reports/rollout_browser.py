"""The page's browser of rollouts: problems, the rollouts of one, filters, sorting and search.

body += rollout_browser({run.name: sample_rollouts(run, most=MOST)})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from raypoly.analysis.reports.pages import render
from raypoly.analysis.reports.rollout_sample import RolloutSample
from raypoly.core.text import visible

MOST = 6000
"""The most rollouts of evaluations in a page, over all its runs, and of training as well."""
# About the most characters of all texts in a page; where there are more, the longest texts are shortened.
_CHARACTERS = 16_000_000
_LONGEST, _LEAST = 1 << 16, 1 << 10  # characters of one text, at most and after shortening
_NUMBERS = ("advantage", "step", "slot", "place", "parent", "tokens", "p", "reward")


def rollout_browser(samples: Mapping[str, RolloutSample]) -> Markup:
    """HTML, by the runs' names; only what was taken where no run has a rollout."""
    alone = len(samples) == 1
    told = {name: " ".join(sample.said) for name, sample in samples.items()}
    said = [text if alone else f"{name}: {text}" for name, text in told.items() if text]
    rows = [{**row, "run": name} for name, sample in samples.items() for row in sample.rows]
    return render("rollouts.html", said=said, data=_columns(rows) if rows else None)


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    # Texts are numbers of a common list: most occur many times.
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
    return {"strings": list(strings), "rows": columns}


def _shortened(texts: Mapping[str, str]) -> dict[str, str]:
    """Truncate the longest texts, keeping both ends, until all together are few enough characters."""
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
