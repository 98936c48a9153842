"""Drops or cuts prompts with more tokens than `generator.max_prompt_tokens` (`problems.over_long`).

    problem_set = await fit_prompts(problem_set, config, generator.encode, print)

`drop` leaves their problems out of every split. `cut` keeps as many of the statement's first and last words as fit (one
more of the first where the number is odd) with `[...]` between them. The text around the statement stays whole: the
signature, and how to answer. The same tokenizer gives the same prompts.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass, replace

from raypoly.config import Config
from raypoly.errors import UsageError
from raypoly.problems.problem_set import ProblemSet
from raypoly.problems.prompt_parts import PromptParts, split_prompt
from raypoly.values import Problem

MARK = "\n[...]\n"
_WORD = re.compile(r"\S+\s*")
_BATCH = 512

Encode = Callable[[Sequence[str]], Awaitable[Sequence[Sized]]]
"""Each text's tokens."""


async def fit_prompts(
    problem_set: ProblemSet, config: Config, encode: Encode, note: Callable[[str], None]
) -> ProblemSet:
    """The problems whose prompts fit, by `problems.over_long`; unchanged with `refuse`. `note` gets the counts.

    Raises `UsageError` if no training problem is left, or a prompt is too long without its statement.
    """
    rule, limit = config.problems.over_long, config.generator.max_prompt_tokens
    if rule == "refuse":
        return problem_set
    splits = {name: list(problems) for name, problems in problem_set.splits.items()}
    places = [(name, index) for name, problems in splits.items() for index in range(len(problems))]
    counts = await count_tokens([splits[name][index].prompt for name, index in places], encode)
    long = [place for place, size in zip(places, counts, strict=True) if size > limit]
    if not long:
        return problem_set
    if rule == "drop":
        gone = set(long)
        splits = {
            name: [problem for index, problem in enumerate(problems) if (name, index) not in gone]
            for name, problems in splits.items()
        }
    else:
        for (name, index), problem in zip(
            long, await cut_statements([splits[n][i] for n, i in long], limit, encode), strict=True
        ):
            if problem is None:
                raise UsageError(
                    f"The prompt of {splits[name][index].id} has more than generator.max_prompt_tokens={limit} tokens "
                    "without its statement: raise the limit, or set problems.over_long=drop."
                )
            splits[name][index] = problem
    names = [name for name, _ in long]
    where = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
    what = "their problems are left out" if rule == "drop" else "they were cut in their statements' middle"
    many = f"{len(long)} of {len(places)} prompts have more than {limit} tokens ({where})"
    note(f"{many}: {what} (problems.over_long={rule}).")
    if not splits["train"]:
        raise UsageError(
            f"Every training prompt has more than generator.max_prompt_tokens={limit} tokens, and problems.over_long="
            "drop leaves none to train on: raise the limit, or set problems.over_long=cut."
        )
    return ProblemSet(splits, problem_set.hash)


async def fit_training_prompts(
    problem_set: ProblemSet,
    config: Config,
    encode: Encode,
    note: Callable[[str], None],
    trained_as: Callable[[str], Sequence[str]],
) -> ProblemSet:
    """`fit_prompts`, then again for training problems by the longest of the objective's prompts."""

    async def longest(texts: Sequence[str]) -> list[Sized]:
        prompts = [tuple(dict.fromkeys(trained_as(text))) for text in texts]
        tokens = iter(await encode([prompt for own in prompts for prompt in own]))
        return [max((next(tokens) for _ in own), key=len) for own in prompts]

    fit = await fit_prompts(problem_set, config, encode, note)
    plain = all(tuple(trained_as(problem.prompt)) == (problem.prompt,) for problem in fit.splits["train"])
    if plain or config.problems.over_long == "refuse":
        return fit
    alone = ProblemSet({name: problems if name == "train" else () for name, problems in fit.splits.items()}, fit.hash)
    train = (await fit_prompts(alone, config, longest, note)).splits["train"]
    return ProblemSet({**fit.splits, "train": train}, fit.hash)


@dataclass
class _Search:
    """A binary search for how many words of a statement may stay: `fits` may, `too_many` may not."""

    parts: PromptParts
    words: list[str]
    fits: int
    too_many: int

    @property
    def next(self) -> int:
        return (self.fits + self.too_many) // 2

    def prompt(self, count: int) -> str:
        """The prompt with `count` words of the statement."""
        return f"{self.parts.head}{keep_ends(self.words, count)}{self.parts.tail}"


def keep_ends(words: Sequence[str], count: int) -> str:
    """`count` of the words, from both ends, with `MARK` where the others were; each word has its space behind it."""
    first = (count + 1) // 2
    begin, end = "".join(words[:first]), "".join(words[len(words) - (count - first) :])
    return f"{begin.rstrip()}{MARK}{end}"


async def cut_statements(problems: Sequence[Problem], limit: int, encode: Encode) -> list[Problem | None]:
    """The problems with as many words of their statements as fit; None if a prompt is too long without any.

    One binary search for all problems at once, so that each round is one call of `encode`.
    """
    parts = [split_prompt(problem) for problem in problems]
    words = [_WORD.findall(part.statement) for part in parts]
    searches = [_Search(part, text, 0, len(text)) for part, text in zip(parts, words, strict=True)]
    least = await count_tokens([search.prompt(0) for search in searches], encode)
    open_ = [search for search, size in zip(searches, least, strict=True) if size <= limit]
    while open_ := [search for search in open_ if search.too_many - search.fits > 1]:
        counts = await count_tokens([search.prompt(search.next) for search in open_], encode)
        for search, size in zip(open_, counts, strict=True):
            if size <= limit:
                search.fits = search.next
            else:
                search.too_many = search.next
    return [
        replace(problem, prompt=search.prompt(search.fits)) if size <= limit else None
        for problem, search, size in zip(problems, searches, least, strict=True)
    ]


async def count_tokens(texts: Sequence[str], encode: Encode) -> list[int]:
    """The number of tokens of each text."""
    found: list[int] = []
    for start in range(0, len(texts), _BATCH):
        found += [len(tokens) for tokens in await encode(texts[start : start + _BATCH])]
    return found
