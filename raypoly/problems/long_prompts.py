"""What becomes of prompts with more tokens than `generator.max_prompt_tokens` (`problems.over_long`).

    problems = await fitted(problems, config, generator.encode, print)

`drop` leaves their problems out of every split. `cut` takes words out of the statement's middle: of its first and its
last words as many stay as fit, the first one more where the number is odd, with `[...]` between; what stands around the
statement stays whole, the signature and how to answer with it. The same tokenizer gives the same prompts.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass, replace

from raypoly.config import Config
from raypoly.errors import UsageError
from raypoly.problems import ProblemSet
from raypoly.problems.prompt_parts import PromptParts, parts_of
from raypoly.values import Problem, Split

MARK = "\n[...]\n"
_WORD = re.compile(r"\S+\s*")
_BATCH = 512

Encode = Callable[[Sequence[str]], Awaitable[Sequence[Sized]]]
"""Each text's tokens."""
Place = tuple[Split, int]


async def fitted(found: ProblemSet, config: Config, encode: Encode, note: Callable[[str], None]) -> ProblemSet:
    """The problems whose prompts fit, as `problems.over_long` says; those of `refuse` as they are.

    Raises `UsageError` where nothing would be left to train on, or a prompt is too long without its statement.
    """
    rule, limit = config.problems.over_long, config.generator.max_prompt_tokens
    if rule == "refuse":
        return found
    splits = {name: list(problems) for name, problems in found.splits.items()}
    places = [(name, index) for name, problems in splits.items() for index in range(len(problems))]
    counts = await sizes([splits[name][index].prompt for name, index in places], encode)
    long = [place for place, size in zip(places, counts, strict=True) if size > limit]
    if not long:
        return found
    if rule == "drop":
        gone = set(long)
        splits = {
            name: [problem for index, problem in enumerate(problems) if (name, index) not in gone]
            for name, problems in splits.items()
        }
    else:
        for (name, index), problem in zip(long, await cut([splits[n][i] for n, i in long], limit, encode), strict=True):
            if problem is None:
                raise UsageError(
                    f"The prompt of {splits[name][index].id} has more than generator.max_prompt_tokens={limit} tokens "
                    "without its statement: raise the limit, or set problems.over_long=drop."
                )
            splits[name][index] = problem
    note(_told(rule, long, len(places), limit))
    if not splits["train"]:
        raise UsageError(
            f"Every training prompt has more than generator.max_prompt_tokens={limit} tokens, and problems.over_long="
            "drop leaves none to train on: raise the limit, or set problems.over_long=cut."
        )
    return ProblemSet(splits, found.hash)


async def fitted_as_trained(
    found: ProblemSet,
    config: Config,
    encode: Encode,
    note: Callable[[str], None],
    trained_as: Callable[[str], Sequence[str]],
) -> ProblemSet:
    """`fitted`; then training problems alone once more, by the longest of the texts that a prompt is sampled as."""

    async def longest(texts: Sequence[str]) -> list[Sized]:
        prompts = [tuple(dict.fromkeys(trained_as(text))) for text in texts]
        tokens = iter(await encode([prompt for own in prompts for prompt in own]))
        return [max((next(tokens) for _ in own), key=len) for own in prompts]

    fit = await fitted(found, config, encode, note)
    plain = all(tuple(trained_as(problem.prompt)) == (problem.prompt,) for problem in fit.splits["train"])
    if plain or config.problems.over_long == "refuse":
        return fit
    alone = ProblemSet({name: problems if name == "train" else () for name, problems in fit.splits.items()}, fit.hash)
    train = (await fitted(alone, config, longest, note)).splits["train"]
    return ProblemSet({**fit.splits, "train": train}, fit.hash)


@dataclass
class _Search:
    """How many words of a statement may stay: `fits` do, `too_many` don't."""

    parts: PromptParts
    words: list[str]
    fits: int
    too_many: int

    @property
    def next(self) -> int:
        return (self.fits + self.too_many) // 2

    @property
    def over(self) -> bool:
        return self.too_many - self.fits <= 1

    def prompt(self, count: int) -> str:
        """With `count` words of the statement."""
        return f"{self.parts.head}{shortened(self.words, count)}{self.parts.tail}"


def shortened(words: Sequence[str], count: int) -> str:
    """The first and last `count` words, each with the space behind it, and a mark where the others were."""
    first = (count + 1) // 2
    begin, end = "".join(words[:first]), "".join(words[len(words) - (count - first) :])
    return f"{begin.rstrip()}{MARK}{end}"


async def cut(problems: Sequence[Problem], limit: int, encode: Encode) -> list[Problem | None]:
    """The problems with as many words of their statements as fit, found for all of them at once by halving; None where
    a prompt is too long without its statement."""
    parts = [parts_of(problem) for problem in problems]
    words = [_WORD.findall(part.statement) for part in parts]
    searches = [_Search(part, text, 0, len(text)) for part, text in zip(parts, words, strict=True)]
    least = await sizes([search.prompt(0) for search in searches], encode)
    open_ = [search for search, size in zip(searches, least, strict=True) if size <= limit]
    while open_ := [search for search in open_ if not search.over]:
        counts = await sizes([search.prompt(search.next) for search in open_], encode)
        for search, size in zip(open_, counts, strict=True):
            if size <= limit:
                search.fits = search.next
            else:
                search.too_many = search.next
    return [
        replace(problem, prompt=search.prompt(search.fits)) if size <= limit else None
        for problem, search, size in zip(problems, searches, least, strict=True)
    ]


async def sizes(texts: Sequence[str], encode: Encode) -> list[int]:
    """Tokens of each text."""
    found: list[int] = []
    for start in range(0, len(texts), _BATCH):
        found += [len(tokens) for tokens in await encode(texts[start : start + _BATCH])]
    return found


def _told(rule: str, long: Sequence[Place], total: int, limit: int) -> str:
    names = [name for name, _ in long]
    where = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
    what = "their problems are left out" if rule == "drop" else "they were cut in their statements' middle"
    return (
        f"{len(long)} of {total} prompts have more than {limit} tokens ({where}): {what} (problems.over_long={rule})."
    )
