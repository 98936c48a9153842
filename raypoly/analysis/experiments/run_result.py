"""The result of a run, read from its files.

result = run.result                                   # of a `PlannedRun`
result.after["8"]; result.after["strategies"]; result.step_seconds
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from raypoly.analysis.experiments.command_result import CommandResult
from raypoly.analysis.metrics.pass_at_k import Select
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.analysis.reports.run_table import first_and_last, shown_ks
from raypoly.core.errors import CorruptData, StorageError, UsageError
from raypoly.core.tables import number
from raypoly.run.plateau import has_ended
from raypoly.run.run_files import RunFiles
from raypoly.run.run_identity import CONFIG_KEY

STRATEGIES = "strategies"
SIDE_MEASURES = {
    "response_length": "response tokens",
    "comment_share": "share of comments",
    "identifier_length": "letters of a name",
    "correct_cpu_seconds": "CPU s of a right program",
    "grad_norm": "norm of the gradient",
    "advantage_variance": "variance of advantages",
}
"""Columns of metrics.jsonl, and their names in a table."""
_CURVES = ("reward", "strategies_correct", "strategies_correct_judged", *SIDE_MEASURES)

Measures = Mapping[str, float | None]
"""pass@k by k, and `STRATEGIES`: expected distinct correct strategies in 8 draws."""


@dataclass(frozen=True)
class ScaffoldCosts:
    """Means over problems of an evaluation's own scaffold; None: unknown."""

    scaffold: str
    tokens: float
    """Of all roles."""
    pass_per_10k: Mapping[str, float]
    """pass@k for each 10,000 tokens that k attempts take, by k."""
    duplicates: float | None = None
    """Share of blocks in which two methods (or programs) are the same."""
    followed: float | None = None
    """Share of attempts that did what their method says."""
    surface_diversity: float | None = None

    @classmethod
    def of(cls, evaluation: Mapping[str, Any] | None, problems: ProblemCounts | None) -> Self | None:
        """From an evaluation's results; by `direct`, which leaves no tokens there, from the counts by problem."""
        if evaluation is None:
            return None
        if "scaffold" in evaluation:
            names = ("duplicates", "followed", "surface_diversity")
            tokens = math.fsum(evaluation["decoded_tokens"].values())
            own = {name: evaluation.get(name) for name in names}
            return cls(evaluation["scaffold"], tokens, evaluation["pass_per_10k"], **own)
        spent = problems.of_known().response_tokens if problems else ()
        if not spent or None in spent:
            return None
        tokens = math.fsum(count or 0 for count in spent) / len(spent)
        curve, samples = evaluation["pass_at_k"], evaluation["samples"]
        return cls("direct", tokens, {k: 1e4 * share * samples / (int(k) * tokens) for k, share in curve.items()})


@dataclass(frozen=True)
class EvaluationNumbers:
    """One evaluation by problem; None is unknown."""

    step: int
    split: str
    problem_set: str | None
    """Content hash of the problem set."""
    weights: str | None
    """Digest of the weights, as in metrics.jsonl."""
    raypoly: str | None
    """The version that measured."""
    problems: ProblemCounts | None
    select: Select = "first"


@dataclass(frozen=True)
class RunResult:
    """One run's result, as in results.json."""

    arm: str
    seed: int
    start: str
    steps: int
    """Asked for."""
    done: int
    finished: bool
    trouble: str
    """Why its files can't be read."""
    before: Measures
    after: Measures
    """On test; empty if not measured. Equal for a run without steps."""
    curves: Mapping[str, Sequence[tuple[int, float]]]
    """(step, value)."""
    step_seconds: float | None
    """Mean."""
    training_seconds: float
    evaluation_seconds: float
    """Both without start, end and pauses."""
    problems_before: EvaluationNumbers | None = None
    problems_after: EvaluationNumbers | None = None
    """By problem; None: unknown."""
    command: str = "train"
    begins_with: str | None = None
    """The arm whose weights it began with."""
    root_weights: str | None = None
    """Digest of the weights that its chain began with; None: unknown, or no chain."""
    found: CommandResult | None = None
    """What a command found that is no training."""
    costs: ScaffoldCosts | None = None

    @property
    def first_weights(self) -> str | None:
        """Digest of the weights that it, or its chain, began with; None where unknown."""
        if self.begins_with is not None:
            return self.root_weights
        return self.problems_before.weights if self.problems_before else None

    @property
    def seconds(self) -> float:
        return self.training_seconds + self.evaluation_seconds

    @property
    def gains(self) -> str:
        """Three measures before and after, or what a command found, for a line of a log."""
        if self.found is not None:
            return f": {self.found.line}"
        return "".join(
            f"  {name} {number(self.before[key])} -> {number(self.after[key])}"
            for key, name in self._told
            if self.before.get(key) is not None and self.after.get(key) is not None
        )

    @property
    def _told(self) -> Sequence[tuple[str, str]]:
        ks = measured([self])[:-1]
        return [*((k, f"pass@{k}") for k in dict.fromkeys((*ks[:1], *ks[-1:]))), (STRATEGIES, "strategies")]


def measured(runs: Iterable[RunResult]) -> tuple[str, ...]:
    return (*shown_ks(side for run in runs for side in (run.before, run.after)), STRATEGIES)


def measure_name(measure: str) -> str:
    return "distinct correct strategies in 8" if measure == STRATEGIES else f"pass@{measure}"


def read_result(arm: str, seed: int, start: str, steps: int, place: Path) -> RunResult:
    """As it stands in the folder `place`."""
    files: RunFiles | None = None
    trouble = ""
    if (place / CONFIG_KEY).exists():
        try:
            files = RunFiles(place)
        except UsageError as error:
            trouble = str(error)
    return result_of(arm, seed, start, steps, files, trouble)


def result_of(arm: str, seed: int, start: str, steps: int, files: RunFiles | None, trouble: str = "") -> RunResult:
    """As `read_result`, from a run's files."""
    summary: Mapping[str, Any] = {}
    rows: Sequence[Mapping[str, Any]] = []
    numbers: Sequence[EvaluationNumbers | None] = (None, None)
    if files is not None:
        try:
            summary, rows = files.summary, files.rows
            numbers = [evaluation_numbers(files, each) for each in _before_and_after(summary, steps)]
        except (CorruptData, StorageError, UsageError, ValueError) as error:
            trouble = str(error)
    done = int(summary.get("steps", 0))
    before, after = _before_and_after(summary, steps)
    evaluations = summary.get("evaluations", [])
    paused = math.fsum(p["seconds"] for e in evaluations for p in e.get("pauses", []) if "seconds" in p)
    seconds = [row["seconds"]["total"] - row.get("paused_seconds", 0.0) for row in rows if row["seconds"].get("total")]
    return RunResult(
        arm=arm,
        seed=seed,
        start=start,
        steps=steps,
        done=done,
        finished=summary.get("state") == "finished"
        and (done == steps or (files is not None and done < steps and has_ended(files.config, done, lambda: rows))),
        trouble=trouble,
        before=_measures(before),
        after=_measures(after),
        curves={name: [(row["step"], row[name]) for row in rows if row.get(name) is not None] for name in _CURVES},
        step_seconds=math.fsum(seconds) / len(seconds) if seconds else None,
        training_seconds=math.fsum(seconds),
        evaluation_seconds=math.fsum(e.get("seconds", 0.0) for e in evaluations) - paused,
        problems_before=numbers[0],
        problems_after=numbers[1],
        costs=ScaffoldCosts.of(after, numbers[1].problems if numbers[1] else None),
    )


def first_weights(place: Path) -> str | None:
    """Digest of the weights that the run in the folder measured first, if any."""
    try:
        before, _ = first_and_last(RunFiles(place).summary) if (place / CONFIG_KEY).exists() else (None, None)
    except (CorruptData, StorageError, UsageError, ValueError):
        return None
    return None if before is None else before.get("weights")


def evaluation_numbers(files: RunFiles, evaluation: Mapping[str, Any] | None) -> EvaluationNumbers | None:
    if evaluation is None:
        return None
    step, split = evaluation["step"], evaluation["split"]
    try:
        problems = ProblemCounts.of(files.samples(step, split), evaluation.get("block", 1))
    except (CorruptData, StorageError, UsageError):  # the measures in the summary outlive the samples
        problems = None
    problem_set, weights, version = (evaluation.get(key) for key in ("problem_set", "weights", "raypoly"))
    select = evaluation.get("select", "first")
    return EvaluationNumbers(step, split, problem_set, weights, version, problems, select)


def _before_and_after(
    summary: Mapping[str, Any], steps: int
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    # Without steps the only evaluation is both.
    before, after = first_and_last(summary)
    return before, after if steps else before


def _measures(evaluation: Mapping[str, Any] | None) -> Measures:
    if evaluation is None:
        return {}
    curve = evaluation["pass_at_k"]
    return {**{k: curve[k] for k in shown_ks([curve])}, STRATEGIES: evaluation.get("strategies_correct")}
