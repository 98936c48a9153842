"""Whether the model that a run starts from can read the run's problems, asked before anything starts.

require_readable(source, problem_set, config, resumes=False)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.gguf_models import GgufModel
from raypoly.data.formats.row_fields import one_line
from raypoly.data.problem_set import ProblemSet
from raypoly.data.puzzles import puzzle_of

_BATCH = 512


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
        counts += [len(ids) for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]]
    limit, longest = config.generator.max_prompt_tokens, max(counts, default=0)
    if longest > limit:
        raise UsageError(
            f"{sum(count > limit for count in counts)} of {len(counts)} prompts have more than "
            f"generator.max_prompt_tokens={limit} tokens; the longest, of {asked[counts.index(longest)].id}, has "
            f"{longest}: raise the key to that, or set problems.over_long to drop or cut."
        )


def _tokenizer_here(path: str) -> Any:
    """The tokenizer of a `model.path`; None where neither a folder nor the hub's cache has it. Raises `UsageError`
    where it is damaged."""
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
