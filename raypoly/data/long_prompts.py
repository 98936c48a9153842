"""Refuses, drops or cuts prompts with more tokens than `generator.max_prompt_tokens` (`problems.over_long`).

    require_readable(source, problem_set, config, resumes=False)        # before anything starts
    problem_set = await fit_prompts(problem_set, config, generator.encode, print)

`drop` leaves their problems out of every split. `cut` keeps as many of the statement's first and last words as fit,
with `[...]` between them; the text around the statement stays whole.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.gguf_models import GgufModel
from raypoly.core.values import Problem
from raypoly.data.formats.row_fields import one_line
from raypoly.data.problem_set import ProblemSet
from raypoly.data.prompt_parts import STATEMENT, PromptParts, split_prompt
from raypoly.data.puzzles import puzzle_of
from raypoly.data.templates import encode_prompts

MARK = "\n[...]\n"
_WORD = re.compile(r"\S+\s*")
_BATCH = 512

Encode = Callable[[Sequence[str]], Awaitable[Sequence[Sized]]]
"""Each text's tokens."""
Asked = Callable[[Problem], Sequence[str]]
"""What a problem's rollouts are sampled behind."""


def _own(problem: Problem) -> Sequence[str]:
    return (problem.prompt,)


async def fit_prompts(
    problem_set: ProblemSet, config: Config, encode: Encode, note: Callable[[str], None], asked: Asked = _own
) -> ProblemSet:
    """The problems whose prompts fit, by `problems.over_long`; unchanged with `refuse`. `note` gets the counts. The
    longest of a problem's prompts (`asked`) counts.

    Raises `UsageError` if no training problem is left, or a prompt is too long without its statement.
    """
    rule, limit = config.problems.over_long, config.generator.max_prompt_tokens
    if rule == "refuse":
        return problem_set
    splits = {name: list(problems) for name, problems in problem_set.splits.items()}
    places = [(name, index) for name, problems in splits.items() for index in range(len(problems))]
    counts = await _longest([splits[name][index] for name, index in places], encode, asked)
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
            long, await cut_statements([splits[n][i] for n, i in long], limit, encode, asked), strict=True
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
    return replace(problem_set, splits=splits)


async def fit_training_prompts(
    problem_set: ProblemSet, config: Config, encode: Encode, note: Callable[[str], None], asked: Asked
) -> ProblemSet:
    """`fit_prompts`, then again for training problems by the scaffold's longest first prompt."""
    fit = await fit_prompts(problem_set, config, encode, note)
    if config.problems.over_long == "refuse" or all(set(asked(p)) == {p.prompt} for p in fit.splits["train"]):
        return fit
    alone = ProblemSet({name: problems if name == "train" else () for name, problems in fit.splits.items()}, fit.hash)
    train = (await fit_prompts(alone, config, encode, note, asked)).splits["train"]
    return replace(fit, splits={**fit.splits, "train": train})


@dataclass
class _Search:
    # A binary search for how many words of a statement may stay: `fits` may, `too_many` may not.
    of: Problem
    parts: PromptParts
    words: list[str]
    fits: int
    too_many: int

    @property
    def next(self) -> int:
        return (self.fits + self.too_many) // 2

    def problem(self, count: int) -> Problem:
        statement = keep_ends(self.words, count)
        metadata = {**self.of.metadata, STATEMENT: statement} if STATEMENT in self.of.metadata else self.of.metadata
        return replace(self.of, prompt=f"{self.parts.head}{statement}{self.parts.tail}", metadata=metadata)


def keep_ends(words: Sequence[str], count: int) -> str:
    first = (count + 1) // 2
    begin, end = "".join(words[:first]), "".join(words[len(words) - (count - first) :])
    return f"{begin.rstrip()}{MARK}{end}"


async def cut_statements(
    problems: Sequence[Problem], limit: int, encode: Encode, asked: Asked = _own
) -> list[Problem | None]:
    """The problems with as many words of their statements as fit; None if a prompt is too long without any.

    One binary search for all problems at once, so that each round is one call of `encode`.
    """
    parts = [split_prompt(problem) for problem in problems]
    words = [_WORD.findall(part.statement) for part in parts]
    searches = [_Search(*each, 0, len(each[2])) for each in zip(problems, parts, words, strict=True)]
    least = await _longest([search.problem(0) for search in searches], encode, asked)
    open_ = [search for search, size in zip(searches, least, strict=True) if size <= limit]
    while open_ := [search for search in open_ if search.too_many - search.fits > 1]:
        counts = await _longest([search.problem(search.next) for search in open_], encode, asked)
        for search, size in zip(open_, counts, strict=True):
            if size <= limit:
                search.fits = search.next
            else:
                search.too_many = search.next
    return [
        search.problem(search.fits) if size <= limit else None for search, size in zip(searches, least, strict=True)
    ]


async def _longest(problems: Sequence[Problem], encode: Encode, asked: Asked) -> list[int]:
    prompts = [tuple(dict.fromkeys(asked(problem))) for problem in problems]
    counts = iter(await count_tokens([prompt for own in prompts for prompt in own], encode))
    return [max(next(counts) for _ in own) for own in prompts]


async def count_tokens(texts: Sequence[str], encode: Encode) -> list[int]:
    found: list[int] = []
    for start in range(0, len(texts), _BATCH):
        found += [len(tokens) for tokens in await encode(texts[start : start + _BATCH])]
    return found


def require_readable(source: ProblemSet, problem_set: ProblemSet, config: Config, resumes: bool) -> None:
    """Raise `UsageError` where the tiny model meets anything but puzzles, or a prompt exceeds
    `generator.max_prompt_tokens`.

    `source`: the problems of `problems.source`, which the warm start is made of. Prompts are not counted for a run that
    `resumes`, nor where the model's tokenizer is not on this machine, nor with what the scaffold adds to them.

    """
    if config.model.path is None:
        for problem in source.splits["train"]:
            puzzle_of(problem)
    elif config.problems.over_long == "refuse" and not resumes:
        _require_room(problem_set, config, _tokenizer_here(config.model.path))


def _require_room(problem_set: ProblemSet, config: Config, tokenizer: Any) -> None:
    asked = [problem for problems in problem_set.splits.values() for problem in problems]
    counts: list[int] = []
    for start in range(0, len(asked) if tokenizer is not None else 0, _BATCH):
        texts = [problem.prompt for problem in asked[start : start + _BATCH]]
        counts += [len(ids) for ids in encode_prompts(tokenizer, texts)]
    limit, longest = config.generator.max_prompt_tokens, max(counts, default=0)
    if longest > limit:
        raise UsageError(
            f"{sum(count > limit for count in counts)} of {len(counts)} prompts have more than "
            f"generator.max_prompt_tokens={limit} tokens; the longest, of {asked[counts.index(longest)].id}, has "
            f"{longest}: raise the key to that, or set problems.over_long to drop or cut."
        )


def _tokenizer_here(path: str) -> Any:
    """None where no folder and no hub's cache has it. Raises `UsageError` where it is damaged."""
    from transformers import AutoTokenizer  # takes seconds to import

    gguf, folder = GgufModel.find(path), Path(path).expanduser()
    if gguf is not None:
        return gguf.tokenizer()
    try:
        return AutoTokenizer.from_pretrained(
            folder if folder.is_dir() else path, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError):
        return None
    except Exception as error:  # tokenizers raises anything for a damaged file
        why = f"{type(error).__name__}: {one_line(str(error), 200)}"
        raise UsageError(f"model.path={path}: its tokenizer can't be read ({why}). Copy the model again.") from error
