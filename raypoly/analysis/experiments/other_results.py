"""Results of runs made in another folder or on another machine, from the results.json there.

    runs, at_once = take_results(runs, [Path("docs/results-objectives.json")], print)

A run is taken if its config file and keys are the same; nothing is measured again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter, ValidationError

from raypoly.analysis.experiments.measured_differences import problem_values
from raypoly.analysis.experiments.planned_runs import PlannedRun
from raypoly.analysis.experiments.run_result import EvaluationNumbers, Measures, RunResult, measure_name
from raypoly.core.errors import UsageError

_ROUNDING = 1e-6


@dataclass(frozen=True)
class _File:
    config: str | None
    at_once: int
    runs: list[dict[str, Any]]


def take_results(
    runs: Sequence[PlannedRun], files: Sequence[Path], say: Callable[[str], None]
) -> tuple[list[PlannedRun], int]:
    """(runs, most runs at once anywhere). A run that a file has finished, and this folder has not, gets its result.

    Raises `UsageError` where a file can't be read.
    """
    found: dict[tuple[str | None, tuple[str, ...]], RunResult] = {}
    at_once = 1
    for file in files:
        read = _read(file, "--also")
        at_once = max(at_once, read.at_once)
        for values in read.runs:
            overrides, result = _result(f"--also {file}", values)
            if result.finished:
                found.setdefault((read.config, overrides), result)
    planned = {(run.base, run.keys) for run in runs}
    for key, result in found.items():
        if key not in planned:
            say(f"Note: {result.arm}-s{result.seed} of --also is no run of this experiment, and is left out.")
    taken = [
        run if it is None or run.finished else replace(run, elsewhere=replace(it, arm=run.arm, start=run.start))
        for run, it in ((run, found.get((run.base, run.keys))) for run in runs)
    ]
    here = {before.name for run in taken if not run.finished for before in _before(run)}  # whose weights are needed
    return [mine if mine.name in here else theirs for mine, theirs in zip(runs, taken, strict=True)], at_once


def _before(run: PlannedRun) -> Iterator[PlannedRun]:
    for before in run.before:
        yield before
        yield from _before(before)


def read_results(file: Path, option: str) -> list[RunResult]:
    """All runs of a results.json, given by `option`. Raises `UsageError` where it can't be read or has a run twice."""
    found = [_result(f"{option} {file}", values)[1] for values in _read(file, option).runs]
    for (arm, seed, steps), count in Counter((each.arm, each.seed, each.steps) for each in found).items():
        if count > 1:
            what = f"holds the run {arm}-s{seed} of {steps} steps {count} times"
            raise UsageError(f"{option} {file} {what}: take the file as the experiment left it.")
    return found


def _read(file: Path, option: str) -> _File:
    try:
        return TypeAdapter(_File).validate_python(json.loads(file.read_bytes()))
    except OSError as error:
        why = f"can't be read ({error.strerror}): give an experiment's results.json"
        raise UsageError(f"{option} {file} {why}.") from None
    except (ValueError, ValidationError) as error:
        raise UsageError(f"{option} {file} is not the results.json of an experiment: {_first(error)}.") from None


def _result(where: str, values: dict[str, Any]) -> tuple[tuple[str, ...], RunResult]:
    kept = {"start": "", **values}
    overrides = kept.pop("overrides", None)
    try:
        keys = TypeAdapter(tuple[str, ...]).validate_python(overrides)
        result = TypeAdapter(RunResult).validate_python(kept)
    except ValidationError as error:
        raise UsageError(f"{where}: one of its runs is not what an experiment writes: {_first(error)}.") from None
    try:
        _check_measures(result.before, result.problems_before)
        _check_measures(result.after, result.problems_after)
    except (ValueError, LookupError) as error:
        what = f"{result.arm}-s{result.seed} is not as it was written: {error}"
        raise UsageError(f"{where}: {what}. Take the file as the experiment left it.") from None
    return keys, result


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


def _first(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        item = error.errors()[0]
        return f"{'.'.join(map(str, item['loc'])) or 'the file'}: {str(item['msg']).lower()}"
    return str(error)
