"""A run's result, read from its files; a number that was not measured is unknown.

result = run.result                                   # of a `PlannedRun`
result.after["8"]; result.after["strategies"]; result.step_seconds
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raypoly.analysis.experiments.scaffold_costs import ScaffoldCosts
from raypoly.analysis.metrics.block_pass_at_k import Select
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.analysis.reports.run_table import first_and_last, shown_ks
from raypoly.core.errors import CorruptData, StorageError, UsageError
from raypoly.core.tables import number
from raypoly.recipes.cppo.gates.audit import PlanAudit
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
"""Columns of metrics.jsonl that say how rollouts and updates changed, and their names in a table."""
_CURVES = ("reward", "strategies_correct", "strategies_correct_judged", *SIDE_MEASURES)
"""Columns of metrics.jsonl that are kept over the steps."""

Measures = Mapping[str, float | None]
"""pass@k by k, and under `STRATEGIES` the expected distinct correct strategies in 8 draws."""


@dataclass(frozen=True)
class EvaluationNumbers:
    """One evaluation by problem, and what was measured; None is unknown."""

    step: int
    split: str
    problem_set: str | None
    """The content hash of the problem set."""
    weights: str | None
    """The digest of the weights, as in metrics.jsonl."""
    raypoly: str | None
    """The version that measured."""
    problems: ProblemCounts | None
    select: Select = "first"
    """Which attempts of a block count in pass@k for k below the block."""


@dataclass(frozen=True)
class RunResult:
    """One run's result, as in results.json."""

    arm: str
    seed: int
    start: str
    steps: int
    """Steps that are asked for."""
    done: int
    """Steps that are done; fewer than `steps` where the run is not finished."""
    finished: bool
    trouble: str
    """Why its files can't be read; empty where they can."""
    before: Measures
    after: Measures
    """On the test split; empty where that was not measured. The same ones for a run of no steps."""
    curves: Mapping[str, Sequence[tuple[int, float]]]
    """(step, value) of each of CURVES."""
    step_seconds: float | None
    """Mean over its steps."""
    training_seconds: float
    evaluation_seconds: float
    """Both are without start, end and pauses, so an interruption does not change them."""
    problems_before: EvaluationNumbers | None = None
    problems_after: EvaluationNumbers | None = None
    """By problem, of the evaluations in `before` and `after`; None where unknown."""
    kind: str = "train"
    begins_with: str | None = None
    """The arm whose weights it began with."""
    root_weights: str | None = None
    """The digest of the weights that its chain began with; None where unknown, and for a run that is after none."""
    audit: PlanAudit | None = None
    """What a run that audits found."""
    gate: Mapping[str, float] | None = None
    """How good the gate is that a run trained, on held-out plans, and its `tau`; None until it is accepted."""
    costs: ScaffoldCosts | None = None
    """Of the evaluation in `after`."""

    @property
    def first_weights(self) -> str | None:
        """The digest of the weights that it, or its chain, began with; None where unknown."""
        if self.begins_with is not None:
            return self.root_weights
        return self.problems_before.weights if self.problems_before else None

    @property
    def seconds(self) -> float:
        """The run's time so far."""
        return self.training_seconds + self.evaluation_seconds

    @property
    def gains(self) -> str:
        """Three measures before and after, for a line of a log; those that were not taken are left out. What an audit
        found."""
        if self.audit is not None:
            return f": {self.audit}"
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
    """The measures that a table of these runs shows: the k of pass@k that one of them has, and `STRATEGIES`."""
    return (*shown_ks(side for run in runs for side in (run.before, run.after)), STRATEGIES)


def measure_name(measure: str) -> str:
    """`pass@8`, or what the measure of strategies counts."""
    return "distinct correct strategies in 8" if measure == STRATEGIES else f"pass@{measure}"


def read_result(arm: str, seed: int, start: str, steps: int, place: Path) -> RunResult:
    """The result of the run in the folder `place` as it stands; nothing is measured where the folder holds no run."""
    files: RunFiles | None = None
    trouble = ""
    if (place / CONFIG_KEY).exists():
        try:
            files = RunFiles(place)
        except UsageError as error:
            trouble = str(error)
    return result_of(arm, seed, start, steps, files, trouble)


def result_of(arm: str, seed: int, start: str, steps: int, files: RunFiles | None, trouble: str = "") -> RunResult:
    """As `read_result`, of a run's files; None for a run that has none."""
    summary: Mapping[str, Any] = {}
    rows: Sequence[Mapping[str, Any]] = []
    numbers: Sequence[EvaluationNumbers | None] = (None, None)
    if files is not None:
        try:
            summary, rows = files.summary, files.rows
            numbers = [evaluation_numbers(files, each, rows) for each in _before_and_after(summary, steps)]
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
    """The digest of the weights that the run in the folder measured first; None where it has measured none."""
    try:
        before, _ = first_and_last(RunFiles(place).summary) if (place / CONFIG_KEY).exists() else (None, None)
    except (CorruptData, StorageError, UsageError, ValueError):
        return None
    return None if before is None else before.get("weights")


def evaluation_numbers(
    files: RunFiles, evaluation: Mapping[str, Any] | None, rows: Sequence[Mapping[str, Any]]
) -> EvaluationNumbers | None:
    """One of a run's evaluations by problem; `rows` are those of its metrics. What the evaluation does not say itself,
    as in runs of earlier versions, is taken from the run where it is certain."""
    if evaluation is None:
        return None
    step, split = evaluation["step"], evaluation["split"]
    try:
        problems = ProblemCounts.of(files.samples(step, split), evaluation.get("block", 1))
    except (CorruptData, StorageError, UsageError):  # the measures in the summary outlive the samples
        problems = None
    digests = {row["step"] + 1: row.get("weight_digest") for row in rows}
    return EvaluationNumbers(
        step,
        split,
        evaluation.get("problem_set", _the_only(files.problem_sets)),
        evaluation.get("weights", digests.get(step)),
        evaluation.get("raypoly", _the_only(files.versions)),
        problems,
        evaluation.get("select", "first"),
    )


def _before_and_after(
    summary: Mapping[str, Any], steps: int
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The evaluations before and after training; the only one is both where there are no steps."""
    before, after = first_and_last(summary)
    return before, after if steps else before


def _the_only(values: Sequence[str]) -> str | None:
    return values[0] if len(values) == 1 else None


def _measures(evaluation: Mapping[str, Any] | None) -> Measures:
    if evaluation is None:
        return {}
    curve = evaluation["pass_at_k"]
    return {**{k: curve[k] for k in shown_ks([curve])}, STRATEGIES: evaluation.get("strategies_correct")}
