"""A run's stored rollouts by group, its problems of today, and its numbers under other verdicts or other labels.

    for group in StoredWalk(run, parts_of(run)).groups:
        group.rollouts, group.then.statuses, group.labels

The run is only read. Steps and evaluations come in the order in which they were made. Both sides of a changed number
are computed over the same groups: those that are known then and now. Where some are left out, `then` differs from what
was `reported`. Training counts distinct strategies in 8 draws or all N; an evaluation as
`raypoly.analysis.metrics.pass_at_k.summarise`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from raypoly import data as problems
from raypoly.analysis.evaluation.evaluation_results import blocks_curve
from raypoly.analysis.metrics.pass_at_k import distinct, ks, pass_at_k, summarise
from raypoly.analysis.metrics.problem_counts import GroupOutcomes, own_samples
from raypoly.analysis.run import Run
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.tables import DASH, ReportTable
from raypoly.core.values import Problem, Rollout, Verdict
from raypoly.data import ProblemSet
from raypoly.data.formats import read_problems
from raypoly.rollouts.scaffolds.run_scaffolds import fit_problems, with_public_tests
from raypoly.run.run_files import EVALUATIONS
from raypoly.run.store.catalogue import PREFIX, Catalogue, step_key
from raypoly.run.store.rollout_files import read_evaluation
from raypoly.run.store.sealed_files import decode_table, unseal
from raypoly.run.store.step_records import CompletedStep
from raypoly.verifier.rewards import Rewards
from raypoly.verifier.score_programs import by_id

_NOT_RUN = Verdict("infra", 0, 0, 0.0, "training ran no program")
_REPORTED = ("strategies_correct", "strategies_correct_judge", "strategies_correct_structural")
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


def read_current_problems(
    run: Run, path: Path | None, note: Callable[[str], None]
) -> tuple[Mapping[str, Problem], str]:
    """The problems of the run's config by id, as they are today, and their hash; or those of a file, and its path.

    `note` hears how they differ. Raises `UsageError` where they can't be read any more.
    """
    if path is not None:
        note(f"Problems of {path}, in place of those that the run's config names.")
        # tests that the run's scaffold shows decide nothing
        file = read_problems(path).compared_by(run.config.problems.comparison)
        given = with_public_tests(ProblemSet({"train": file.problems}, ""), run.config)
        return by_id(given.splits["train"]), str(path)
    try:
        found = fit_problems(problems.build_problem_set(run.config.problems), run.config)
    except UsageError as error:
        raise UsageError(f"{str(error).rstrip('.')}; or name a file of the run's problems by --problems.") from error
    if not run.problem_sets:
        note("The run does not say what its problems were: they may have changed since.")
    elif run.problem_sets != (found.hash,):
        was = ", ".join(name[:12] for name in run.problem_sets)
        note(f"The problem set has changed since the run began: its content is {found.hash[:12]} now and was {was}.")
    return by_id(problem for split in found.splits.values() for problem in split), found.hash


def parts_of(run: Run) -> list[StoredPart]:
    """Every step and evaluation whose rollouts are kept, in the order in which they were made."""
    evaluations = Catalogue.of(run.store.list(PREFIX)).evaluations
    parts = [StoredPart(step, "train", step_key(step)) for step in run.steps]
    parts += [StoredPart(step, split, key) for (step, split), key in evaluations.items()]
    aside = map(_ASIDE_NAME.match, run.store.list(EVALUATIONS))
    parts += [StoredPart(int(found[2]), found[1], found[0]) for found in aside if found]
    return sorted(parts, key=lambda part: (part.step, part.training, part.split, part.key))


class StoredWalk:
    """The groups of several parts in order, each part read once, with the numbers that the run reported of it."""

    def __init__(self, run: Run, parts: Sequence[StoredPart]) -> None:
        self.parts = parts
        self._open: dict[str, tuple[StoredPart, Mapping[str, Any]]] = {}
        self.groups: Iterator[StoredGroup] = self._read(run)
        """Those that are left."""

    def follows(self, row: Mapping[str, Any]) -> bool:
        """Whether a row `{of, slot}` of an earlier walk is of the next group, which then is left out."""
        group = next(self.groups, None)
        if group is not None and (group.part.key, group.slot) != (row.get("of"), row.get("slot")):
            self.groups, group = chain([group], self.groups), None
        return group is not None

    def close_part(self, key: str) -> tuple[StoredPart, Mapping[str, Any]]:
        """A part that has been read, and the run's numbers of it, which are held until now."""
        return self._open.pop(key)

    def _read(self, run: Run) -> Iterator[StoredGroup]:
        for part in self.parts:
            groups, reported = _read_part(run, part)
            self._open[part.key] = part, reported
            yield from groups


def _read_part(run: Run, part: StoredPart) -> tuple[list[StoredGroup], Mapping[str, Any]]:
    """A part's groups, in order, and its reported numbers. Raises `StorageError`, `CorruptData`, `OtherSchema`."""
    if part.training:
        completed = run.completed(part.step)
        return list(_read_trained(part, completed, run.config)), completed.applied.metrics
    if part.key.startswith(PREFIX):
        found = read_evaluation(run.store, part.step, part.split)
        return list(_read_evaluated(part, found.table, found.payload)), found.payload
    table, _ = decode_table(run.store.read(part.key), run.store.place(part.key))
    results = part.key.removesuffix(".parquet") + ".json"
    payload = unseal(run.store.read(results), run.store.place(results))
    return list(_read_evaluated(part, table, payload)), payload


def _read_trained(part: StoredPart, completed: CompletedStep, config: Config) -> Iterator[StoredGroup]:
    # only where a group has one: it imports what the run's config names
    given = Rewards.of_run(config) if any("reward" in group.findings for group in completed.groups) else None
    for group, rewards in zip(completed.groups, completed.rewards, strict=True):
        if not group.size:
            continue  # drafts alone, which nothing was scored of
        verdicts, rows = group.verdicts or (_NOT_RUN,) * group.size, group.findings.get("reward")
        names = rows.schema.names if isinstance(rows, pa.RecordBatch) else ()
        found = {name: rows.column(name).to_numpy(zero_copy_only=False) for name in names} if rows else {}
        parts = given.measures(found) if given and found else None
        yield StoredGroup(
            part,
            group.slot,
            group.problem_id,
            group.rollouts,
            GroupOutcomes.of(verdicts, rewards if np.all(np.isfinite(rewards)) else None, parts),
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
            Rollout(
                *(none, none, no_logprobs, row["text"], row["finish_reason"], row["seed"], part.step),
                outcome=row.get("outcome"),
            )
            for row in group
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


Values = Mapping[str, float]
"""A group's own numbers by name; what is unknown is missing."""


@dataclass(frozen=True)
class ChangedNumber:
    """One number of a step, an evaluation or all training; None is unknown."""

    number: str
    of: str
    groups: int
    reported: float | None
    then: float | None
    now: float | None

    @property
    def change(self) -> float | None:
        return None if self.then is None or self.now is None else self.now - self.then

    @property
    def of_step(self) -> bool:
        return self.of.startswith("step ")


@dataclass(frozen=True)
class GroupThenAndNow:
    then: GroupOutcomes
    now: GroupOutcomes
    labels: Sequence[int] | None

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> GroupThenAndNow | None:
        """None where a side is unknown."""
        if row["now"] is None:
            return None
        then, now = GroupOutcomes.read(row["then"]), GroupOutcomes.read(row["now"])
        return cls(then, now, row["labels"]) if then.sound and now.sound else None


def compare_values(of: str, pairs: Sequence[tuple[Values, Values]], reported: Mapping[str, Any]) -> list[ChangedNumber]:
    """Means over groups by name; None on a side that any group lacks."""
    numbers = []
    for name in dict.fromkeys(name for one, two in pairs for name in (*one, *two)):
        # where it is unknown of some groups, the others may be no fair part of all: those without a right program
        then, now = (_mean([pair[side].get(name) for pair in pairs]) for side in (0, 1))
        numbers.append(ChangedNumber(name, of, len(pairs), reported.get(name), then, now))
    return numbers


def training_numbers(of: str, held: Sequence[GroupThenAndNow], reported: Mapping[str, Any]) -> list[ChangedNumber]:
    """Reward, pass@k and strategies of a step's groups."""
    numbers = compare_values(of, [(_values_of(group.then), _values_of(group.now)) for group in held], reported)
    # as the run's own row: of the groups that the judge labelled, of all where it labelled none
    labelled = [group for group in held if group.labels is not None] or held
    found = [(group.then.structural, group.now.structural) for group in labelled]
    name = "strategies_structural"
    known = [({name: distinct(one)}, {name: distinct(two)}) for one, two in found if one and two]
    numbers += compare_values(of, known, reported)
    # each of the groups that have it; one that reads what stages found is not known now
    for name in sorted({name for group in held for name in group.then.parts.keys() & group.now.parts.keys()}):
        having = [group for group in held if name in group.then.parts]
        both = [(_only(name, group.then.parts), _only(name, group.now.parts)) for group in having]
        numbers += compare_values(of, both, reported)
    return numbers


def _only(name: str, values: Values) -> Values:
    return {name: values[name]} if name in values else {}


def training_means(numbers: Sequence[ChangedNumber]) -> list[ChangedNumber]:
    """The numbers of steps as means over the groups of training, where both sides are known."""
    means = []
    for name in dict.fromkeys(each.number for each in numbers if each.of_step):
        own = [each for each in numbers if each.of_step and each.number == name]
        own = [each for each in own if each.change is not None] or own
        sizes = [each.groups for each in own]
        then, now = (_mean([getattr(each, side) for each in own], sizes) for side in ("then", "now"))
        means.append(ChangedNumber(name, "training", sum(sizes), None, then, now))
    return means


def evaluation_numbers(of: str, held: Sequence[GroupThenAndNow], reported: Mapping[str, Any]) -> list[ChangedNumber]:
    """pass@k and correct strategies of an evaluation's problems."""
    if not held:
        return []
    then = summarise([group.then.outcome(group.labels) for group in held])
    now = summarise([group.now.outcome(group.labels) for group in held])
    curves: list[Any] = [found.get("pass_at_k", {}) for found in (reported, then, now)]
    if (block := reported.get("block", 1)) > 1:
        sides = zip(*((group.then.statuses, group.now.statuses) for group in held), strict=True)
        passed = [[[status == "passed" for status in each] for each in side] for side in sides]
        curves[1:] = [blocks_curve(each, block, reported.get("select", "first")) for each in passed]
    numbers = [ChangedNumber(f"pass@{k}", of, len(held), *(curve.get(k) for curve in curves)) for k in curves[1]]
    for key in _REPORTED:
        values: list[Any] = [found.get(key) for found in (reported, then, now)]
        if any(value is not None for value in values):
            numbers.append(ChangedNumber(key, of, len(held), *values))
    return numbers


def show_numbers(console: Console, numbers: Sequence[ChangedNumber], at_most: int) -> None:
    """Print the numbers of training and evaluations, and those of steps that moved."""
    moved = [each for each in numbers if each.change and each.of_step]
    rest = [*training_means(numbers), *(each for each in numbers if not each.of_step)]
    if not rest:
        return
    rows = []
    for each in (*rest, *moved[:at_most]):
        values = (DASH if value is None else f"{value:.4f}" for value in (each.reported, each.then, each.now))
        change = "unknown" if each.change is None else f"{each.change:+.4f}" if each.change else DASH
        rows.append((each.of, each.number, f"{each.groups:,}", *values, change))
    head = ("of", "number", "groups", "reported", "then", "now", "change")
    table = ReportTable(head, rows, range(2, len(head))).rich()
    table.columns[1].no_wrap = True
    console.print(table)
    if len(moved) > at_most:
        console.print(f"the first {at_most} of {len(moved):,} numbers of steps that moved are shown", highlight=False)


def _mean(values: Sequence[float | None], weights: Sequence[float] | None = None) -> float | None:
    """None where one is unknown."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    weights = weights or [1.0] * len(known)
    return math.fsum(value * weight for value, weight in zip(known, weights, strict=True)) / math.fsum(weights)


def _values_of(facts: GroupOutcomes) -> Values:
    size, correct = len(facts.statuses), facts.correct
    reward = None if facts.rewards is None else math.fsum(facts.rewards) / size
    curve = {f"pass@{k}": pass_at_k(size, len(correct), k) for k in ks(size)}
    values: dict[str, float | None] = {"reward": reward, **curve, "strategies_correct": facts.drawn_strategies}
    return {name: value for name, value in values.items() if value is not None}
