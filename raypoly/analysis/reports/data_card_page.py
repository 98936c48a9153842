"""A preparation's data card for a reader: `card.md`, tables with a figure above them, and that figure, `card.png`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from raypoly.analysis.reports import figures
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
_TAGS = 20
"""Most tags that are shown."""

Values = Mapping[str, Any]


def card_page(values: Values, figure: str) -> str:
    """The Markdown page of a card's values; `figure` is the picture's name beside it."""
    return "\n".join(_page_parts(values, figure))


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


def _page_parts(values: Values, figure: str) -> Iterator[str]:
    yield f"# {values['name']}\n"
    yield f"Made by `raypoly prepare`, raypoly {values['raypoly']}.\n"
    yield f"![problems after each stage, passes, difficulty, tokens]({figure})\n"
    yield f"## Stages\n\n{stage_table(values).markdown()}"
    for title, key in (("Sources", "sources"), ("Sets that nothing is shared with", "against")):
        if values[key]:
            yield f"## {title}\n\n{_sources(values[key])}"
    yield f"## Splits\n\n{_splits(values)}"
    if values["dates"]:
        yield f"Problems are of {values['dates'][0]} to {values['dates'][1]}.\n"
    if values["passes"]:
        low, high = values["band"]
        yield f"## Passes of {values['samples']} samples\n\nKept were those with {low} to {high}.\n"
        yield _counts("passes", values["passes"])
    yield f"## Prompts\n\n{_tokens(values['prompt_tokens'])}"
    for title, key in (("Licences", "licences"), ("Tags", "tags")):
        if values[key]:
            yield f"## {title}\n\n{_counts(key, values[key], _TAGS)}"
    yield from _left_out(values)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return ReportTable(head, list(rows)).markdown()


def _sources(files: Values) -> str:
    keys = ("rows", "used", "revision", "licence", "sha256")
    rows = ((name, *("" if facts[key] is None else str(facts[key]) for key in keys)) for name, facts in files.items())
    return _table(("name", "rows", "used", "revision", "licence", "SHA-256"), rows)


def _splits(values: Values) -> str:
    levels = values["levels"]
    rows = (
        (name, f"{count:,}", *(str(values["difficulty"][name].get(level, 0)) for level in levels))
        for name, count in values["splits"].items()
    )
    return _table(("split", "problems", *levels), rows)


def _tokens(tokens: Values) -> str:
    if not tokens["counted"]:
        return "Tokens were not counted: neither a model nor a tokenizer was named.\n"
    counts = f"{tokens['over_long']:,} of {tokens['counted']:,} prompts had more than {tokens['limit']:,} tokens"
    words = f"{counts}; {tokens['cut']:,} of these were cut."
    if tokens["kept"]:
        least, median, most = tokens["kept"]
        words += f" Those that were kept have {least:,} to {most:,}, the median {median:,}."
    return f"{words}\n"


def _left_out(values: Values) -> Iterator[str]:
    if values["reasons"]:
        yield "## Why problems were left out\n"
        rows = ((row["stage"], row["reason"], f"{row['problems']:,}") for row in values["reasons"])
        yield _table(("stage", "reason", "problems"), rows)
    if values["pairs"]:
        yield "## The same problem\n"
        keys = ("problem", "same_as", "source", "because")
        pairs = ((*(pair[key] for key in keys), _similarity(pair)) for pair in values["pairs"])
        yield _table(("left out", "is the same as", "of", "because of", "similarity"), pairs)


def _similarity(pair: Values) -> str:
    return "unknown" if pair["similarity"] is None else f"{pair['similarity']:.2f}"


def _counts(name: str, counts: Mapping[str, int], most: int | None = None) -> str:
    return _table((name, "problems"), [(key, f"{count:,}") for key, count in counts.items()][:most])


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
    _draw_bars(
        axes, f"The base model's passes of {values['samples']} samples", f"kept: {low} to {high}", "passes", bars
    )


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
