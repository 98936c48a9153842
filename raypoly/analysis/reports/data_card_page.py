"""A preparation's data card for a reader: `card.md`, tables with a figure above them, and that figure, `card.png`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from raypoly.analysis.reports import figures
from raypoly.analysis.reports.figures import Panel
from raypoly.analysis.reports.pages import render
from raypoly.core.tables import ReportTable
from raypoly.data.preparing.decision_log import StageName

WORDS: Mapping[StageName, str] = {
    "load": "rows that could be used",
    "choose": "that `where` and `take` choose",
    "solutions": "whose own solution, if any, passes",
    "same": "each once, and none of an evaluation set",
    "prompts": "with a prompt of an allowed length",
    "sampling": "in the band of the base model's passes",
    "split": "kept",
}
"""Words for the problems that went on from a stage."""
SPLITS: Mapping[str, str] = {"train": figures.BLUE, "validation": figures.ORANGE, "test": figures.GREEN}
_TAGS = 20  # most tags that are shown

Values = Mapping[str, Any]


def card_page(values: Values, figure: str) -> str:
    """The Markdown page of a card's values; `figure` is the picture's name beside it."""
    levels, counts = values["levels"], values["difficulty"]
    splits = [
        (name, size, *(counts[name].get(level, 0) for level in levels)) for name, size in values["splits"].items()
    ]
    pairs = [
        (*(pair[key] for key in ("problem", "same_as", "source", "because")), _similarity(pair["similarity"]))
        for pair in values["pairs"]
    ]
    reasons = [(each["stage"], each["reason"], each["problems"]) for each in values["reasons"]]
    tables = {
        "stages": stage_table(values),
        "splits": _table(("split", "problems", *levels), splits),
        "passes": _table(("passes", "problems"), values["passes"].items()),
        "licences": _table(("licences", "problems"), values["licences"].items()),
        "tags": _table(("tags", "problems"), [*values["tags"].items()][:_TAGS]),
        "reasons": _table(("stage", "reason", "problems"), reasons),
        "pairs": _table(("left out", "is the same as", "of", "because of", "similarity"), pairs),
    }
    titles = {"sources": "Sources", "against": "Sets that nothing is shared with"}
    sources = {title: _sources(values[key]) for key, title in titles.items() if values[key]}
    return render("card.md", card=values, figure=figure, tables=tables, sources=sources).rstrip() + "\n"


def _table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> ReportTable:
    """None is an empty cell."""

    def shown(cell: object) -> str:
        return f"{cell:,}" if isinstance(cell, int) else "" if cell is None else str(cell)

    return ReportTable(head, [tuple(map(shown, row)) for row in rows])


def _sources(files: Values) -> ReportTable:
    keys = ("rows", "used", "revision", "licence", "sha256")
    return _table(("name", *keys[:-1], "SHA-256"), [(name, *(it[key] for key in keys)) for name, it in files.items()])


def _similarity(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def stage_table(values: Values) -> ReportTable:
    """Problems that came to each stage and went on; stages that were not asked for say so."""
    rows = [
        (
            WORDS[row["stage"]],
            row["came"],
            "not asked for" if row["dropped"] is None else row["dropped"],
            row["went_on"],
        )
        for row in values["stages"]
    ]
    return _table(("stage", "came", "left out", "went on"), rows)


def draw_card(values: Values) -> bytes:
    """PNG of the card's numbers: stages, passes, difficulty, prompt lengths. A panel without data says so."""
    draw = (_draw_stages, _draw_passes, _draw_difficulty, _draw_tokens)
    panels = [Panel("", partial(each, values=values)) for each in draw]
    return figures.draw_grid(str(values["name"]), {"": panels}, columns=2)


def _draw_stages(axes: Axes, values: Values) -> None:
    rows = values["stages"][::-1]
    names, went_on, dropped = ([row[key] or 0 for row in rows] for key in ("stage", "went_on", "dropped"))
    axes.barh(names, went_on, color=figures.BLUE, label="went on")
    axes.barh(names, dropped, left=went_on, color=figures.LIGHT_GREY, label="left out")
    for place, row in enumerate(rows):
        axes.text(row["came"], place, f" {row['went_on']:,}", va="center", fontsize=8)
    axes.set(title="Problems after each stage", xlabel="problems")


def _draw_passes(axes: Axes, values: Values) -> None:
    known = {int(passes): count for passes, count in values["passes"].items() if passes != "unknown"}
    low, high = values["band"]
    bars = [(x, known.get(x, 0), low <= x <= high) for x in range(values["samples"] + 1)] if known else []
    title = f"The base model's passes of {values['samples']} samples"
    _draw_bars(axes, f"{title} (kept: {low} to {high})", "passes", bars)


def _draw_tokens(axes: Axes, values: Values) -> None:
    limit, ends = values["prompt_tokens"]["limit"], values["prompt_tokens"]["histogram"]
    bars = [(f"≤ {int(end):,}", count, int(end) <= limit) for end, count in ends.items()]
    _draw_bars(axes, f"Tokens of the prompts (at most {limit:,})", "tokens", bars)


def _draw_bars(axes: Axes, title: str, unit: str, bars: Sequence[tuple[int | str, int, bool]]) -> None:
    """Draw bars of (where, problems, whether these are within the limits)."""
    axes.set(title=title, xlabel=unit, ylabel="problems")
    for place, count, within in bars:
        axes.bar(place, count, color=figures.BLUE if within else figures.LIGHT_GREY)


def _draw_difficulty(axes: Axes, values: Values) -> None:
    levels = values["levels"]
    below = [0] * len(levels)
    for name, counts in values["difficulty"].items():
        heights = [counts.get(level, 0) for level in levels]
        axes.bar(levels, heights, bottom=below, color=SPLITS[name], label=name)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set(title="Difficulty of those that are kept", ylabel="problems")
