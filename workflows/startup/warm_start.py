"""The warm start of the tiny policy, made once and kept in a cache.

    path = ensure_warm_start(config, problems)     # a Hugging Face folder

The folder is named by a hash of everything that decides its content, and committed by a rename, with checksums. Finding
it imports none of what makes it (Ray Train, Ray Data, transformers): most starts find it.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from raypoly.core.caches import FolderCache, cache_root
from raypoly.core.config import Config, WarmStartConfig
from raypoly.data import ProblemSet
from raypoly.data.puzzles import puzzle_of
from raypoly.data.puzzles.puzzle_language import Puzzle

WARM_START_THREADS = 2  # compute threads. Another number gives another order of sums, and other weights.
_DECIDING = (
    "learner/supervised_examples.py",
    "learner/tiny_model.py",
    "learner/learning_rate.py",
    "data/puzzles/puzzle_language.py",
    "data/puzzles/puzzle_solutions.py",
)


def ensure_warm_start(config: Config, problems: ProblemSet, say: Callable[[str], None] = print) -> Path:
    """The folder of the tiny policy after its warm start, trained unless a sound one is cached. Raises `UsageError` if
    the problems are not puzzles, `RaypolyError` if training fails."""
    puzzles = [puzzle_of(problem) for problem in problems.splits["train"]]

    def train(folder: Path) -> None:
        from workflows.startup.warm_start_training import train_warm_start

        train_warm_start(config.warm_start, puzzles, WARM_START_THREADS, folder, say)

    cache = FolderCache(cache_root() / "warm-start", say)
    return cache.ensure(warm_start_key(config.warm_start, puzzles), train)


def warm_start_key(config: WarmStartConfig, puzzles: list[Puzzle]) -> str:
    """SHA-256, hex, over the config, the training prompts, the code that makes the folder, and PyTorch's version.
    Budgets are no part of it: the control experiment starts from the same policy."""
    made_by = [config.model_dump(), [p.words for p in puzzles], WARM_START_THREADS, version("torch")]
    return hashlib.sha256(json.dumps([*made_by, *map(_statements, _DECIDING)]).encode()).hexdigest()


def _statements(file: str) -> str:
    """The file's code without comments and docstrings, which decide nothing; it is not imported."""
    tree = ast.parse(files("raypoly").joinpath(file).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [  # type: ignore[attr-defined]
                each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ]
    return ast.unparse(tree)
