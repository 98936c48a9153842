"""A run's stored rollouts by group, of training steps and evaluations alike, and the run's problems of today.

    for part in parts_of(run):
        groups, reported = read_part(run, part)
        groups[0].rollouts, groups[0].then.statuses, reported["reward"]

The run is only read. Steps and evaluations come in the order in which they were made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from raypoly import data as problems
from raypoly.analysis.metrics.group_outcomes import GroupOutcomes
from raypoly.analysis.metrics.problem_counts import own_samples
from raypoly.analysis.run import Run
from raypoly.core.errors import UsageError
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.data import ProblemSet
from raypoly.data.formats import read_problems
from raypoly.rollouts.scaffolds.run_scaffolds import fit_problems, with_public_tests
from raypoly.run.run_files import EVALUATIONS
from raypoly.run.store.catalogue import PREFIX, Catalogue, step_key
from raypoly.run.store.rollout_files import read_evaluation
from raypoly.run.store.sealed_files import decode_table, unseal
from raypoly.run.store.step_records import CompletedStep
from raypoly.verifier.score_programs import by_id

_SAMPLES = {"problem_id", "rollout", "text", "finish_reason", "seed", "status", "strategy", "label"}
_ASIDE_NAME = re.compile(rf"^{EVALUATIONS}([a-z]+)-step-(\d{{6,9}})-[^/]+\.parquet$")


@dataclass(frozen=True, order=True)
class StoredPart:
    """Rollouts that were made together: a training step, or an evaluation of the weights after so many steps."""

    step: int
    split: str
    """`train` for a step; of an evaluation what it measured, which may be training problems too."""
    key: str
    """The file in the run; for a step, its name before it is bundled."""

    @property
    def training(self) -> bool:
        return self.key == step_key(self.step)

    @property
    def name(self) -> str:
        return f"step {self.step}" if self.training else f"{self.split} after step {self.step}"


@dataclass(frozen=True)
class StoredGroup:
    """One problem's N rollouts, with the run's own verdicts and labels."""

    part: StoredPart
    slot: int
    problem_id: str
    rollouts: tuple[Rollout, ...]
    """Without tokens in an evaluation, which keeps none."""
    then: GroupOutcomes
    labels: tuple[int, ...] | None
    """[N]: the judge's strategies, 0 where degenerate; None where it was not asked or gave no labels."""
    verdicts: tuple[Verdict, ...] = ()
    """[N], with evidence; empty for an evaluation."""
    asked: bool = False
    """Whether training asked its judge about the group."""
    shown_tests: int = 0
    """Of the problem's tests, how many an evaluation had shown to its scaffold: they decide nothing."""


@dataclass(frozen=True)
class CurrentProblems:
    by_id: Mapping[str, Problem]
    hash: str
    """Of the set's content, or the path of the file that was named instead."""


def read_current_problems(run: Run, path: Path | None, note: Callable[[str], None]) -> CurrentProblems:
    """The problems of the run's config, as they are today, or those of a file; `note` hears how they differ.

    Raises `UsageError` where they can't be read any more.
    """
    if path is not None:
        note(f"Problems of {path}, in place of those that the run's config names.")
        # tests that the run's scaffold shows decide nothing
        given = with_public_tests(ProblemSet({"train": read_problems(path).problems}, ""), run.config)
        return CurrentProblems(by_id(given.splits["train"]), str(path))
    try:
        found = fit_problems(problems.build_problem_set(run.config.problems), run.config)
    except UsageError as error:
        raise UsageError(f"{str(error).rstrip('.')}; or name a file of the run's problems by --problems.") from error
    if not run.problem_sets:
        note("The run does not say what its problems were: they may have changed since.")
    elif run.problem_sets != (found.hash,):
        was = ", ".join(name[:12] for name in run.problem_sets)
        note(f"The problem set has changed since the run began: its content is {found.hash[:12]} now and was {was}.")
    return CurrentProblems(by_id(problem for split in found.splits.values() for problem in split), found.hash)


def parts_of(run: Run) -> list[StoredPart]:
    """Every step and evaluation whose rollouts are kept, in the order in which they were made."""
    evaluations = Catalogue.of(run.store.list(PREFIX)).evaluations
    parts = [StoredPart(step, "train", step_key(step)) for step in run.steps]
    parts += [StoredPart(step, split, key) for (step, split), key in evaluations.items()]
    aside = map(_ASIDE_NAME.match, run.store.list(EVALUATIONS))
    parts += [StoredPart(int(found[2]), found[1], found[0]) for found in aside if found]
    return sorted(parts, key=lambda part: (part.step, part.training, part.split, part.key))


def read_part(run: Run, part: StoredPart) -> tuple[list[StoredGroup], Mapping[str, Any]]:
    """The groups of a step or an evaluation, in order, and the numbers that the run reported.

    Raises `StorageError` where its file is gone, `CorruptData`, `OtherSchema`.
    """
    if part.training:
        completed = run.completed(part.step)
        return list(_read_trained(part, completed)), completed.applied.metrics
    if part.key.startswith(PREFIX):
        found = read_evaluation(run.store, part.step, part.split)
        return list(_read_evaluated(part, found.table, found.payload)), found.payload
    table, _ = decode_table(run.store.read(part.key), run.store.place(part.key))
    results = part.key.removesuffix(".parquet") + ".json"
    payload = unseal(run.store.read(results), run.store.place(results))
    return list(_read_evaluated(part, table, payload)), payload


def _read_trained(part: StoredPart, completed: CompletedStep) -> Iterator[StoredGroup]:
    for group, rewards in zip(completed.groups, completed.rewards, strict=True):
        if not group.size:
            continue  # drafts alone, which nothing was scored of
        verdicts = group.verdicts or ()
        yield StoredGroup(
            part,
            group.slot,
            group.problem_id,
            group.rollouts,
            GroupOutcomes.of(verdicts, rewards if np.all(np.isfinite(rewards)) else None),
            None if group.labels is None else group.labels.strategies,
            verdicts,
            asked=group.labels is not None or group.unjudged,
        )


def _read_evaluated(part: StoredPart, table: pa.Table, payload: Mapping[str, Any]) -> Iterator[StoredGroup]:
    if not set(table.column_names) >= _SAMPLES:
        return  # it kept no samples
    rows = own_samples(table).to_pylist()
    none, no_logprobs = np.zeros(0, np.int32), np.zeros(0, np.float32)
    starts = [place for place, row in enumerate(rows) if row["rollout"] == 0]
    for slot, (start, end) in enumerate(zip(starts, [*starts[1:], len(rows)], strict=True)):
        group: Sequence[Mapping[str, Any]] = rows[start:end]
        rollouts = tuple(
            Rollout(none, none, no_logprobs, row["text"], row["finish_reason"], row["seed"], part.step) for row in group
        )
        labels = tuple(row["label"] for row in group)
        then = GroupOutcomes(tuple(row["status"] for row in group), tuple(row["strategy"] for row in group))
        yield StoredGroup(
            part,
            slot,
            group[0]["problem_id"],
            rollouts,
            then,
            None if None in labels else labels,
            shown_tests=payload.get("shown_tests") or 0,
        )
