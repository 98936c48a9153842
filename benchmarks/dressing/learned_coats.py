"""What share of a run's programs wears a coat, and how many true strategies there are, by ten steps.

    python -m benchmarks.dressing.learned_coats RUN_FOLDER ...

For runs from `dressed_start`. A coat is known by its text; a true strategy is this version's label of a right program,
whatever judge the run had. It reads the rollout files' columns, which have been the same since before this judge.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.dressing.__main__ import label_of
from raypoly.core.config import ProblemsConfig, ScorerConfig
from raypoly.data import build_problem_set
from raypoly.strategies.evidence import StrategyEvidence
from raypoly.verifier import LocalPool

MARK = "// 9"
"""In the text of each coat, and in no other solution of a puzzle."""
_STEPS = 10
_COLUMNS = ["step", "slot", "problem_id", "text", "reward", "label", "advantage"]


def rows_by_tens(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """A run's training rollouts, ten steps at a time."""
    files = sorted((folder / "rollouts").glob("step-*.parquet"))
    for first in range(0, len(files), _STEPS):
        yield [
            row for file in files[first : first + _STEPS] for row in pq.read_table(file, columns=_COLUMNS).to_pylist()
        ]


def summary(rows: Sequence[dict[str, Any]], strategies: Sequence[str | None]) -> dict[str, float]:
    """`strategies`: each right row's true one, in order."""
    coats = np.array([MARK in row["text"] for row in rows])
    right = np.array([row["reward"] > 0 for row in rows])
    advantages = np.array([row["advantage"] for row in rows])
    true, paid = dict[Any, set[Any]](), dict[Any, set[Any]]()
    for row, strategy in zip((row for row in rows if row["reward"] > 0), strategies, strict=True):
        group = row["step"], row["slot"]
        true.setdefault(group, set()).add(strategy)
        paid.setdefault(group, set()).add(row["label"])
    groups = len({(row["step"], row["slot"]) for row in rows})
    return {
        "dressed": float(coats.mean()),
        "dressed of right": float(coats[right].mean()),
        "advantage of right dressed": float(advantages[right & coats].mean()) if (right & coats).any() else 0.0,
        "advantage of right plain": float(advantages[right & ~coats].mean()),
        "true strategies a group": sum(map(len, true.values())) / groups,
        "labels paid a group": sum(map(len, paid.values())) / groups,
    }


def _print_run(folder: Path, pool: LocalPool, console: Console) -> None:
    problems = {it.id: it for split in build_problem_set(ProblemsConfig()).splits.values() for it in split}
    table = Table(title=str(folder))
    for first, rows in enumerate(rows_by_tens(folder)):
        programs = [
            (problems[r["problem_id"]], problems[r["problem_id"]].prompt + r["text"]) for r in rows if r["reward"] > 0
        ]
        found = summary(rows, [label_of(verdict.evidence) for verdict in pool.score(programs)])
        if not first:
            for name in ("steps", *found):
                table.add_column(name, justify="right")
        table.add_row(
            f"{first * _STEPS} to {first * _STEPS + _STEPS - 1}", *(f"{value:.3f}" for value in found.values())
        )
    console.print(table)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m benchmarks.dressing.learned_coats RUN_FOLDER ...")
    with LocalPool(ScorerConfig(workers=2), StrategyEvidence()) as pool:
        for name in sys.argv[1:]:
            _print_run(Path(name), pool, Console(width=140))
