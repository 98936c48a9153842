"""Cost and power of an experiment before it starts, and the power of a finished table.

for line in forecast_lines(runs, gpu="h200"): print(line)
for line in power_lines(runs, pilot): print(line)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import get_args

from raypoly import data as problems
from raypoly.analysis.experiments.arm_comparison import BEFORE, MeasuredDifference, compare_arms, measure_differences
from raypoly.analysis.experiments.planned_runs import PlannedRun
from raypoly.analysis.experiments.run_result import STRATEGIES, ResultsFile, RunResult
from raypoly.analysis.statistics.power import (
    TYPICAL,
    DifferenceSpread,
    ExperimentSize,
    Planned,
    fewest,
    power,
    smallest_difference,
)
from raypoly.core.config import Config
from raypoly.core.errors import UsageError
from raypoly.core.tables import DASH, ReportTable
from raypoly.data.problem_set import count_measured
from raypoly.planning.cost import forecast_judge
from raypoly.planning.devices import Device, choose_device, gpu_to_plan, layout_of, this_machine
from raypoly.planning.dry_run import describe_loss
from raypoly.strategies.judge.judge_usage import dollars


def forecast_lines(runs: Sequence[PlannedRun], gpu: str | None, pilot: Path | None = None) -> Iterator[str]:
    """A row for each arm that is trained or measured, the sum, and the power, on the GPU of that name (default:
    `gpu_to_plan`). Raises `UsageError` where the GPU is unknown, or the results.json `pilot` can't be used."""
    said: list[str] = []
    gpu = gpu_to_plan(gpu, [run.checked_config for run in runs], said.append)
    yield from dict.fromkeys(said)
    device = choose_device(gpu, this_machine(runs[0].place).memory)
    measured = [] if pilot is None else ResultsFile.read(pilot, "--pilot").runs
    arms: dict[str, list[PlannedRun]] = {}
    for run in runs:
        if run.arm_config.is_training:
            arms.setdefault(run.arm, []).append(run)
    costs = {arm: _run_costs(of_arm[0], device, measured) for arm, of_arm in arms.items()}
    notes = [note for of_arm in arms.values() for note in planned_problems(of_arm[0].checked_config)[1]]
    yield from (note for note in dict.fromkeys(notes) if note not in said)
    rows = [(arm, str(len(arms[arm])), f"{arms[arm][0].steps:,}", *_cells(cost)) for arm, cost in costs.items()]
    every = [cost for arm, cost in costs.items() for _ in arms[arm]]
    if every:
        rows.append(("in all", str(len(every)), "", *_cells([_sum(each) for each in zip(*every, strict=True)])))
        yield "\n".join(ReportTable(("arm", "runs", "steps", "hours a run", "judge, a run"), rows).columns(23, 14))
    if len(every) < len(runs):
        yield "Runs of other commands are not counted."
    by_loss: dict[str, list[str]] = {}
    for arm in (arm for arm in arms if arms[arm][0].steps):
        by_loss.setdefault(describe_loss(arms[arm][0].checked_config), []).append(arm)
    yield from (f"Loss of {', '.join(names)}: {loss}." for loss, names in by_loss.items())
    if pilot is None:
        yield "Hours come from a pilot (`--pilot results.json`), or from `raypoly train --rehearse` of an arm's config."
    yield ""
    try:
        yield from power_lines(runs, pilot)
    except UsageError as error:  # what it costs is known all the same
        if pilot is not None:
            raise
        yield str(error)


def _run_costs(run: PlannedRun, device: Device, pilot: Sequence[RunResult]) -> tuple[float | None, float | None]:
    """GPU-hours of a run, or a CPU's hours, by a pilot's seconds; and the judge's dollars. None: unknown."""
    config = run.checked_config
    own = [other for other in pilot if other.arm == run.arm] or pilot
    steps = [each.step_seconds for each in own if each.step_seconds is not None]
    measured = own if config.train.steps else [each for each in own if each.before or each.after]
    hours = None
    if measured and (steps or not config.train.steps):
        seconds = fmean(each.evaluation_seconds for each in measured)
        seconds += config.train.steps * fmean(steps) if steps else 0.0
        hours = max(1, layout_of(config, device).gpus) * seconds / 3600
    usd = forecast_judge(config).usd
    return hours, None if usd is None else usd * config.train.steps


def _sum(costs: Iterable[float | None]) -> float | None:
    """None where one is unknown."""
    known = list(costs)
    return None if None in known else math.fsum(cost for cost in known if cost is not None)


def _cells(costs: Sequence[float | None]) -> tuple[str, str]:
    hours, usd = costs
    return (
        "unknown" if hours is None else f"{hours:,.1f}",
        "unknown" if usd is None else dollars(usd) if usd else "without cost",
    )


_ANY = "any share"
_ASKED = (0.02, 0.05, 0.1)  # differences that a user may hope for
_NEEDED: tuple[Planned, ...] = get_args(Planned)


def power_sentence(measured: Sequence[MeasuredDifference]) -> str:
    """What a table of these differences finds in its first measure, by the arm whose difference spreads most."""
    own = [each for each in measured if each.reference != BEFORE] or list(measured)
    first = [each for each in own if each.measure == own[0].measure]
    sizes = [(_size_of(each), _spread_of(each)) for each in first]
    if all(size.problems == 1 for size, _ in sizes):
        return "One problem does not show how differences spread, so what such an experiment finds is not known."
    size, spread = max(sizes, key=lambda it: smallest_difference(*it))
    least = smallest_difference(size, spread)
    return (
        f"An experiment of {_sized(size)} whose differences spread as these finds one of {least:.2f} in "
        f"{_named(first[0].measure)} in 80 % of cases, and smaller ones less often."
    )


def power_lines(runs: Sequence[PlannedRun], pilot: Path | None) -> Iterator[str]:
    """The smallest difference that these runs find, and how many problems, seeds or samples would find others.

    By the spread in the results.json `pilot`, else by `TYPICAL`. Raises `UsageError` where the pilot can't be read or
    has no pairs.
    """
    size = planned_size(runs)
    spreads, seeds = ({_ANY: TYPICAL}, 0) if pilot is None else _spreads(pilot, size)
    yield f"{_sized(size)}, {size.samples} samples a problem; 95 % intervals, found in 80 % of cases."
    rows = [row for measure, spread in spreads.items() for row in _rows(measure, size, spread)]
    yield "\n".join(ReportTable(("measure", "difference", "found in", *_NEEDED), rows).columns(17, 12))
    yield "Last columns: so many problems, or seeds, or samples, all else as planned,"
    yield "find it in 80 %; - where none do."
    if pilot is None:
        yield (
            f"Assumed: differences spread by {TYPICAL.problems:g} over problems, {TYPICAL.seeds:g} over seeds, "
            f"{TYPICAL.rest:g} over both,\nand {TYPICAL.samples:g} with one sample a problem.\n"
            "`--pilot results.json` takes them from an experiment of two arms or more."
        )
    if any(spread.samples is None for spread in spreads.values()):
        yield "What few samples add is not known of strategies and of attempts drawn jointly."
    if seeds == 1 and size.seeds > 1:
        yield f"The pilot has pairs of one seed. Assumed: differences spread by {TYPICAL.seeds:g} over seeds."


def planned_power(runs: Sequence[PlannedRun]) -> str:
    """What the first arm's difference from the next can show, in a sentence."""
    try:
        size = planned_size(runs)
    except UsageError as error:  # training goes on without: it has validation, or measures later
        return str(error)
    least = smallest_difference(size, TYPICAL)
    return f"{_sized(size)} find a difference of {least:.2f} in 80 % of cases, if it spreads as usual (--power)."


def planned_size(runs: Sequence[PlannedRun]) -> ExperimentSize:
    """Common seeds and test problems of the first two arms. Raises `UsageError` where there are none."""
    arms = list(dict.fromkeys(run.arm for run in runs if run.arm_config.is_training))[:2]
    of_arms = [[run for run in runs if run.arm == arm] for arm in arms]
    seeds = set.intersection(*({run.seed for run in each} for each in of_arms)) if of_arms else set()
    if not seeds:
        raise UsageError(f"No difference can be measured: {' and '.join(arms) or 'these runs'} have no seed in common.")
    tested = planned_problems(runs[0].config)[0].get("test", 0)
    if not tested:
        raise UsageError("These runs have no test problems (problems.test), so no difference can be measured.")
    same = _same_problems([run.config for run in of_arms[0] if run.seed in seeds])
    return ExperimentSize(tested, len(seeds), runs[0].config.evaluate.samples, same)


def _same_problems(configs: Sequence[Config]) -> bool:
    # Whether all are tested on the same problems; where these can't be read yet, by their keys.
    if all(config.problems == configs[0].problems for config in configs):
        return True
    try:
        one, other = (problems.build_problem_set(config.problems).splits.get("test", ()) for config in configs[:2])
    except UsageError:
        return False
    return {problem.id for problem in one} == {problem.id for problem in other}


def planned_problems(config: Config) -> tuple[dict[str, int], list[str]]:
    """Problems with tests by split, and notes on what is assumed where they can't be read yet."""
    try:
        return count_measured(problems.build_problem_set(config.problems), config.reward.name), []
    except UsageError as error:
        assumed = {"validation": config.problems.validation, "test": config.problems.test}
        said = f"problems.validation={assumed['validation']} and problems.test={assumed['test']} are counted instead."
        return assumed, [f"{error} Until they are there, {said}"]


def _rows(measure: str, size: ExperimentSize, spread: DifferenceSpread) -> Iterator[tuple[str, ...]]:
    yield _named(measure), f"{smallest_difference(size, spread):.3f}", "80 %"
    least = {"samples": int(measure) if measure.isdecimal() else 1}  # pass@k needs k
    for asked in _ASKED:
        known = [what for what in _NEEDED if what != "samples" or spread.samples is not None]
        needed = {what: count for what in known if (count := fewest(asked, what, size, spread)) is not None}
        cells = [f"{max(needed[what], least.get(what, 1)):,}" if what in needed else DASH for what in _NEEDED]
        yield "", f"{asked:g}", f"{100 * power(asked, size, spread):.0f} %", *cells


def _spreads(pilot: Path, size: ExperimentSize) -> tuple[dict[str, DifferenceSpread], int]:
    """By measure the spread with which an experiment of this `size` finds least; and the fewest seeds of an arm."""
    measured = [
        each
        for comparison in compare_arms(ResultsFile.read(pilot, "--pilot").runs)
        for each in measure_differences(comparison)
        if each.reference != BEFORE
    ]
    if not measured:
        raise UsageError(f"--pilot {pilot} has no two arms with numbers by problem and the same start and seed.")
    spreads: dict[str, list[DifferenceSpread]] = {}
    for each in measured:
        spreads.setdefault(each.measure, []).append(_spread_of(each))
    widest = {measure: max(of, key=lambda spread: smallest_difference(size, spread)) for measure, of in spreads.items()}
    return widest, min(len(each.paired.by_seed) for each in measured)


def _named(measure: str) -> str:
    return {STRATEGIES: "strategies in 8"}.get(measure, f"pass@{measure}" if measure.isdecimal() else measure)


def _size_of(each: MeasuredDifference) -> ExperimentSize:
    rows = each.paired.by_seed
    return ExperimentSize(round(sum(map(len, rows)) / len(rows)), len(rows), each.samples, each.paired.crossed)


def _spread_of(each: MeasuredDifference) -> DifferenceSpread:
    return DifferenceSpread.of(each.paired, each.samples, each.sampling)


def _sized(size: ExperimentSize) -> str:
    counted = f"{size.problems} problem{'s' * (size.problems > 1)}"
    if size.seeds > 1 and not size.crossed:
        return f"{size.seeds} seeds with {counted} of their own each"
    return f"{counted} and {size.seeds} seed{'s' * (size.seeds > 1)}"
