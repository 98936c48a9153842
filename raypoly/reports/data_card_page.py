"""The data card for a reader (`card.md`): tables in Markdown, with the figure above them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raypoly.preparing.decision_log import StageName
from raypoly.reports.markdown import table

WORDS: Mapping[StageName, str] = {
    "load": "rows that could be used",
    "solutions": "whose own solution, if any, passes",
    "same": "each once, and none of an evaluation set",
    "prompts": "with a prompt of an allowed length",
    "sampling": "in the band of the base model's passes",
    "split": "kept",
}
"""What those that went on from a stage are."""
STAGE_HEAD = ("stage", "came", "left out", "went on")
TAGS = 20
"""Of the commonest tags, that many are shown."""

Values = Mapping[str, Any]


def page(values: Values, figure: str) -> str:
    """The page of a card's values; `figure` is the picture's name beside it."""
    return "\n".join(_parts(values, figure))


def stage_rows(values: Values) -> Iterator[tuple[str, ...]]:
    """What each stage came to, in words; nothing is said of those that were not asked for."""
    for row in values["stages"]:
        dropped = "not asked for" if row["dropped"] is None else f"{row['dropped']:,}"
        yield WORDS[row["stage"]], f"{row['came']:,}", dropped, f"{row['went_on']:,}"


def _parts(values: Values, figure: str) -> Iterator[str]:
    yield f"# {values['name']}\n"
    yield f"Made by `raypoly prepare`, raypoly {values['raypoly']}.\n"
    yield f"![problems after each stage, passes, difficulty, tokens]({figure})\n"
    yield "## Stages\n"
    yield table(STAGE_HEAD, stage_rows(values))
    for title, key in (("Sources", "sources"), ("Sets that nothing is shared with", "against")):
        if values[key]:
            yield f"## {title}\n"
            yield _sources(values[key])
    yield "## Splits\n"
    yield _splits(values)
    if values["dates"]:
        yield f"Problems are of {values['dates'][0]} to {values['dates'][1]}.\n"
    if values["passes"]:
        low, high = values["band"]
        yield f"## Passes of {values['samples']} samples\n\nKept were those with {low} to {high}.\n"
        yield table(("passes", "problems"), _counts(values["passes"]))
    yield "## Prompts\n"
    yield _tokens(values["prompt_tokens"])
    for title, key in (("Licences", "licences"), ("Tags", "tags")):
        if values[key]:
            yield f"## {title}\n"
            yield table((key, "problems"), list(_counts(values[key]))[:TAGS])
    yield from _left_out(values)


def _sources(files: Values) -> str:
    keys = ("rows", "used", "revision", "licence", "sha256")
    rows = ((name, *("" if facts[key] is None else str(facts[key]) for key in keys)) for name, facts in files.items())
    return table(("name", "rows", "used", "revision", "licence", "SHA-256"), rows)


def _splits(values: Values) -> str:
    levels = values["levels"]
    rows = (
        (name, f"{count:,}", *(str(values["difficulty"][name].get(level, 0)) for level in levels))
        for name, count in values["splits"].items()
    )
    return table(("split", "problems", *levels), rows)


def _tokens(tokens: Values) -> str:
    if not tokens["counted"]:
        return "Tokens were not counted: neither a model nor a tokenizer was named.\n"
    counts = f"{tokens['over_long']:,} of {tokens['counted']:,} prompts had more than {tokens['limit']:,} tokens"
    told = f"{counts}; {tokens['cut']:,} of these were cut."
    if tokens["kept"]:
        least, median, most = tokens["kept"]
        told += f" Those that were kept have {least:,} to {most:,}, the median {median:,}."
    return f"{told}\n"


def _left_out(values: Values) -> Iterator[str]:
    if values["reasons"]:
        yield "## Why problems were left out\n"
        rows = ((row["stage"], row["reason"], f"{row['problems']:,}") for row in values["reasons"])
        yield table(("stage", "reason", "problems"), rows)
    if values["pairs"]:
        yield "## The same problem\n"
        keys = ("problem", "same_as", "source", "because")
        pairs = ((*(pair[key] for key in keys), _similarity(pair)) for pair in values["pairs"])
        yield table(("left out", "is the same as", "of", "because of", "similarity"), pairs)


def _similarity(pair: Values) -> str:
    return "unknown" if pair["similarity"] is None else f"{pair['similarity']:.2f}"


def _counts(values: Values) -> Iterator[tuple[str, str]]:
    return ((name, f"{count:,}") for name, count in values.items())
