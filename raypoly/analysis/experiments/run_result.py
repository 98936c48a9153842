"""The result of a run: read from its files, or from an experiment's results.json.

    result = read_result("grpo", 0, "", 80, Path("out/grpo-s0"))
    result.after["8"]; result.after["strategies"]; result.step_seconds
    ResultsFile.read(Path("docs/results/collapse.json"), "--pilot").runs

A command that is no training leaves a `CommandResult` beside it: the named numbers that it found.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import numpy as np
from pydantic import TypeAdapter, ValidationError

from raypoly.analysis.metrics.pass_at_k import STRATEGY_DRAWS, Select, expected_distinct, pass_at_k
from raypoly.analysis.metrics.problem_counts import ProblemCounts
from raypoly.analysis.reports.run_table import first_and_last, shown_ks
from raypoly.core.errors import CorruptData, StorageError, UsageError
from raypoly.core.tables import number
from raypoly.run.crash import CONFIG_KEY
from raypoly.run.plateau import has_ended
from raypoly.run.run_files import RunFiles
from raypoly.run.store import Store
from raypoly.run.store.sealed_files import seal, unseal

RESULT_KEY = "result.json"
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
_ROUNDING = 1e-6
VALIDATION = "validation pass@"
"""How curves of evaluations on validation begin; a k follows."""
_MOST_SHOWN = 64
_CURVES = ("reward", "strategies_correct", "strategies_correct_judged", *SIDE_MEASURES)

Measures = Mapping[str, float | None]
"""pass@k by k, and `STRATEGIES`: expected distinct correct strategies in 8 draws."""


@dataclass(frozen=True)
class CommandResult:
    """What a command found. An experiment shows it, and goes on with what is after it only if it passes."""

    command: str
    """`train-gate`, as an arm names it."""
    title: str
    """Heading of the table of such results in a report."""
    numbers: Mapping[str, int | float | None]
    """By the name of their column; None is unknown."""
    line: str = ""
    """The numbers in words, for a log."""
    go_back_to: str | None = None
    """What has to be repeated before anything after it may start; None where it passes."""
    weights: str | None = None
    """Digest of the weights that it is of."""

    @property
    def passes(self) -> bool:
        return self.go_back_to is None

    def write(self, store: Store) -> None:
        store.commit(RESULT_KEY, seal(asdict(self)))

    @classmethod
    def read(cls, store: Store) -> Self | None:
        """None where the run's folder has none. Raises `UsageError` where it is damaged."""
        if not store.exists(RESULT_KEY):
            return None
        place = store.place(RESULT_KEY)
        try:
            return TypeAdapter(cls).validate_python(unseal(store.read(RESULT_KEY), place))
        except (CorruptData, ValidationError) as error:
            raise UsageError(
                f"{place} can't be read ({error}): remove it, and the same command makes it again."
            ) from error


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
    algorithmic_diversity: float | None = None

    @classmethod
    def of(cls, evaluation: Mapping[str, Any] | None, problems: ProblemCounts | None) -> Self | None:
        """From an evaluation's results; by `direct`, which leaves no tokens there, from the counts by problem."""
        if evaluation is None:
            return None
        if "scaffold" in evaluation:
            names = ("duplicates", "followed", "surface_diversity", "algorithmic_diversity")
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


def problem_values(numbers: EvaluationNumbers | None, measure: str) -> dict[str, float] | None:
    """The measure, a key of `RunResult.after`, of each problem whose tests could be run; their mean is the run's.

    None where there is none, or one is unknown.
    """
    counts = _known(numbers)
    if counts is None or numbers is None:
        return None
    if measure != STRATEGIES:
        return counts.pass_at_k(int(measure), numbers.select)
    found: dict[str, float] = {}
    for name, samples, sizes in zip(counts.id, counts.samples, counts.strategies, strict=True):
        if sizes is None or samples < STRATEGY_DRAWS:
            return None
        found[name] = expected_distinct(samples, sizes, STRATEGY_DRAWS)
    return found


def sampling_variance(numbers: EvaluationNumbers | None, measure: str) -> float | None:
    """Variance of a problem's measure over draws of samples, the mean over problems.

    Takes a problem's share of right samples for its chance. None of strategies and of attempts drawn jointly.
    """
    counts = _known(numbers)
    if measure == STRATEGIES or counts is None or any(counts.blocks) or problem_values(numbers, measure) is None:
        return None
    from scipy import stats  # takes a second, which a run's own page does without

    values = {n: np.array([pass_at_k(n, hits, int(measure)) for hits in range(n + 1)]) for n in set(counts.samples)}
    found = []
    for samples, correct in zip(counts.samples, counts.correct, strict=True):
        chances = stats.binom.pmf(np.arange(samples + 1), samples, (correct or 0) / samples)
        found.append(float(chances @ values[samples] ** 2 - (chances @ values[samples]) ** 2))
    return float(np.mean(found))


def _known(numbers: EvaluationNumbers | None) -> ProblemCounts | None:
    """Problems whose tests could be run; None where there is none."""
    if numbers is None or numbers.problems is None:
        return None
    counts = numbers.problems.of_known()
    return counts if counts.id else None


def strata_of(numbers: EvaluationNumbers | None) -> Mapping[str, str] | None:
    """By problem id, the part in a fixed share that it was drawn from; None where there is one part, or unknown."""
    if numbers is None or numbers.problems is None:
        return None
    counts = numbers.problems
    parts = {name: part for name, part in zip(counts.id, counts.stratum, strict=False) if part is not None}
    return parts if len(parts) == len(counts.id) and len(set(parts.values())) > 1 else None


@dataclass(frozen=True)
class RunResult:
    """One run's result, as in results.json."""

    arm: str
    seed: int
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
    start: str = ""
    """As a `PlannedRun` has it; not in results.json."""
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
    overrides: tuple[str, ...] | None = None
    """Keys of its `PlannedRun` in a results.json; None elsewhere."""

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
        *ks, _ = measured([self])
        names = {k: f"pass@{k}" for k in (*ks[:1], *ks[-1:])} | {STRATEGIES: "strategies"}
        return "".join(
            f"  {name} {number(self.before[key])} -> {number(self.after[key])}"
            for key, name in names.items()
            if self.before.get(key) is not None and self.after.get(key) is not None
        )


@dataclass(frozen=True)
class ResultsFile:
    """results.json of an experiment, made here or elsewhere."""

    config: str | None
    at_once: int
    runs: list[RunResult]

    @classmethod
    def read(cls, file: Path, option: str) -> Self:
        """The file given by `option`. Raises `UsageError` where it can't be read, has a run twice, or has a mean that
        is not that of its numbers by problem."""
        try:
            found = TypeAdapter(cls).validate_python(json.loads(file.read_bytes()))
        except OSError as error:
            why = f"can't be read ({error.strerror}): give an experiment's results.json"
            raise UsageError(f"{option} {file} {why}.") from None
        except ValueError as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else None
            said = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}" if first else str(error)
            raise UsageError(f"{option} {file} is not the results.json of an experiment: {said}.") from None
        for (arm, seed, steps), count in Counter((run.arm, run.seed, run.steps) for run in found.runs).items():
            if count > 1:
                what = f"holds the run {arm}-s{seed} of {steps} steps {count} times"
                raise UsageError(f"{option} {file} {what}: take the file as the experiment left it.")
        for run in found.runs:
            try:
                _check_measures(run.before, run.problems_before)
                _check_measures(run.after, run.problems_after)
            except (ValueError, LookupError) as error:
                what = f"{run.arm}-s{run.seed} is not as it was written: {error}"
                raise UsageError(f"{option} {file}: {what}. Take the file as the experiment left it.") from None
        return found


def _check_measures(measures: Measures, numbers: EvaluationNumbers | None) -> None:
    """Raise `ValueError` where a measure is no number, or not that of the numbers by problem."""
    for measure, value in measures.items():
        if value is None:
            continue
        known = problem_values(numbers, measure)
        found = fmean(known.values()) if known else value
        if not abs(value - found) < _ROUNDING:  # also where it is not a number
            by_problem = f", and by its numbers by problem it is {found:.4f}" if known else ", which is no number"
            raise ValueError(f"it has {measure_name(measure)} {value:.4f}{by_problem}")


def measured(runs: Iterable[RunResult]) -> tuple[str, ...]:
    return (*shown_ks(side for run in runs for side in (run.before, run.after)), STRATEGIES)


def measure_name(measure: str) -> str:
    return "distinct correct strategies in 8" if measure == STRATEGIES else f"pass@{measure}"


def read_result(arm: str, seed: int, start: str, steps: int, place: Path | RunFiles) -> RunResult:
    """As it stands in a run's folder or files; `trouble` says what can't be read."""
    files: RunFiles | None = None
    summary: Mapping[str, Any] = {}
    rows: Sequence[Mapping[str, Any]] = []
    numbers: Sequence[EvaluationNumbers | None] = (None, None)
    found, trouble = None, ""
    try:
        if isinstance(place, RunFiles) or (place / CONFIG_KEY).exists():
            files = place if isinstance(place, RunFiles) else RunFiles(place)
            summary, rows = files.summary, files.rows
            numbers = [evaluation_numbers(files, each) for each in _before_and_after(summary, steps)]
            found = CommandResult.read(files.store)
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
        curves={name: [(row["step"], row[name]) for row in rows if row.get(name) is not None] for name in _CURVES}
        | _on_validation(evaluations),
        step_seconds=math.fsum(seconds) / len(seconds) if seconds else None,
        training_seconds=math.fsum(seconds),
        evaluation_seconds=math.fsum(e.get("seconds", 0.0) for e in evaluations) - paused,
        problems_before=numbers[0],
        problems_after=numbers[1],
        command="train" if found is None else found.command,
        found=found,
        costs=ScaffoldCosts.of(after, numbers[1].problems if numbers[1] else None),
    )


def _on_validation(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[tuple[int, float]]]:
    """pass@1 and pass@k of the largest k by step, as curves of `VALIDATION` and the k."""
    kept = [each for each in evaluations if each["split"] == "validation"]
    ks = sorted({k for each in kept for k in each["pass_at_k"] if int(k) <= _MOST_SHOWN}, key=int)
    chosen = dict.fromkeys((*ks[:1], *ks[-1:]))
    return {
        f"{VALIDATION}{k}": sorted((each["step"], each["pass_at_k"][k]) for each in kept if k in each["pass_at_k"])
        for k in chosen
    }


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
