"""A preparation's data card for a reader: `card.md`, tables with a figure above them, and that figure, `card.png`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from raypoly.analysis.reports import figures
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
    tables = {
        "stages": stage_table(values),
        "splits": _splits(values),
        "passes": _counted("passes", values["passes"]),
        "licences": _counted("licences", values["licences"]),
        "tags": _counted("tags", values["tags"], _TAGS),
        "reasons": _reasons(values["reasons"]),
        "pairs": _pairs(values["pairs"]),
    }
    titles = {"sources": "Sources", "against": "Sets that nothing is shared with"}
    sources = {title: _sources(values[key]) for key, title in titles.items() if values[key]}
    return render("card.md", card=values, figure=figure, tables=tables, sources=sources).rstrip() + "\n"


def stage_table(values: Values) -> ReportTable:
    """Problems that came to each stage and went on; stages that were not asked for say so."""
    rows = [
        (
            WORDS[row["stage"]],
            f"{row['came']:,}",
            "not asked for" if row["dropped"] is None else f"{row['dropped']:,}",
            f"{row['went_on']:,}",
        )
        for row in values["stages"]
    ]
    return ReportTable(("stage", "came", "left out", "went on"), rows)


def _sources(files: Values) -> ReportTable:
    columns = {"rows": "rows", "used": "used", "revision": "revision", "licence": "licence", "sha256": "SHA-256"}
    rows = [
        (name, *("" if facts[key] is None else str(facts[key]) for key in columns)) for name, facts in files.items()
    ]
    return ReportTable(("name", *columns.values()), rows)


def _splits(values: Values) -> ReportTable:
    levels = values["levels"]
    rows = [
        (name, f"{count:,}", *(str(values["difficulty"][name].get(level, 0)) for level in levels))
        for name, count in values["splits"].items()
    ]
    return ReportTable(("split", "problems", *levels), rows)


def _reasons(found: Iterable[Values]) -> ReportTable:
    rows = [(each["stage"], each["reason"], f"{each['problems']:,}") for each in found]
    return ReportTable(("stage", "reason", "problems"), rows)


def _pairs(pairs: Iterable[Values]) -> ReportTable:
    keys = ("problem", "same_as", "source", "because")
    rows = [
        (*(pair[key] for key in keys), "unknown" if pair["similarity"] is None else f"{pair['similarity']:.2f}")
        for pair in pairs
    ]
    return ReportTable(("left out", "is the same as", "of", "because of", "similarity"), rows)


def _counted(name: str, counts: Mapping[str, int], most: int | None = None) -> ReportTable:
    return ReportTable((name, "problems"), [(key, f"{count:,}") for key, count in counts.items()][:most])


def draw_card(values: Values) -> bytes:
    """PNG of the card's numbers: stages, passes, difficulty, prompt lengths. A panel without data says so."""
    drawing = figures.new_figure(13, 8.2, dpi=100)
    panels = drawing.subplots(2, 2)
    _draw_stages(panels[0, 0], values["stages"][::-1])
    _draw_passes(panels[0, 1], values)
    _draw_difficulty(panels[1, 0], values)
    _draw_tokens(panels[1, 1], values["prompt_tokens"])
    figures.clean_axes(panels.flat)
    drawing.suptitle(str(values["name"]), fontsize=12)
    return figures.png_of(drawing)


def _draw_stages(axes: Axes, rows: Sequence[Values]) -> None:
    names, went_on, dropped = ([row[key] or 0 for row in rows] for key in ("stage", "went_on", "dropped"))
    axes.barh(names, went_on, color=figures.BLUE, label="went on")
    axes.barh(names, dropped, left=went_on, color=figures.LIGHT_GREY, label="left out")
    for place, row in enumerate(rows):
        axes.text(row["came"], place, f" {row['went_on']:,}", va="center", fontsize=8)
    axes.set(title="Problems after each stage", xlabel="problems")
    figures.legend_below(axes, 2)


def _draw_passes(axes: Axes, values: Values) -> None:
    known = {int(passes): count for passes, count in values["passes"].items() if passes != "unknown"}
    low, high = values["band"]
    bars = [(x, known.get(x, 0), low <= x <= high) for x in range(values["samples"] + 1)] if known else []
    title = f"The base model's passes of {values['samples']} samples"
    _draw_bars(axes, title, f"kept: {low} to {high}", "passes", bars)


def _draw_tokens(axes: Axes, tokens: Values) -> None:
    limit = tokens["limit"]
    bars = [(f"≤ {int(end):,}", count, int(end) <= limit) for end, count in tokens["histogram"].items()]
    _draw_bars(axes, "Tokens of the prompts", f"at most {limit:,}", "tokens", bars)


def _draw_bars(axes: Axes, title: str, limits: str, unit: str, bars: Sequence[tuple[int | str, int, bool]]) -> None:
    """Draw bars of (where, problems, whether these are within the limits)."""
    if not bars:
        axes.set(title=title, xticks=[], yticks=[])
        figures.say_not_measured(axes)
        return
    places, counts, within = zip(*bars, strict=True)
    axes.bar(places, counts, color=[figures.BLUE if it else figures.LIGHT_GREY for it in within])
    axes.set(title=f"{title} ({limits})", xlabel=unit, ylabel="problems")


def _draw_difficulty(axes: Axes, values: Values) -> None:
    levels = values["levels"]
    below = [0] * len(levels)
    for name, counts in values["difficulty"].items():
        heights = [counts.get(level, 0) for level in levels]
        axes.bar(levels, heights, bottom=below, color=SPLITS[name], label=name)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set(title="Difficulty of those that are kept", ylabel="problems")
    figures.legend_below(axes, 3, 0.08)
