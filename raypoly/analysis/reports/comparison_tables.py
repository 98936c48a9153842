"""Tables of compared arms: results, and differences with what they show.

text = comparison_text(comparison)                    # Markdown, with the sentences between the tables
tables = comparison_tables(comparison)                # {"results": ..., "difference_from_grpo": ...}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from raypoly.analysis.experiments.arm_comparison import (
    BEFORE,
    Arm,
    ArmComparison,
    MeasuredDifference,
    SeedSpread,
    interval_after,
    interval_before,
    measure_differences,
    reference_words,
    without_difference,
)
from raypoly.analysis.experiments.experiment_forecast import power_sentence
from raypoly.analysis.experiments.run_result import (
    SIDE_MEASURES,
    STRATEGIES,
    CommandResult,
    RunResult,
    measure_name,
    problem_values,
    strata_of,
)
from raypoly.analysis.statistics.intervals import ConfidenceInterval, interval_text, share_interval
from raypoly.core.tables import DASH, ReportTable, number


def comparison_text(comparison: ArmComparison) -> str:
    """The tables of arms with as many steps, in Markdown."""
    unlike = [
        f"Not compared, since {reason}: "
        + "; ".join(f"{mine.arm}-s{mine.seed} and {theirs.arm}-s{theirs.seed}" for mine, theirs in pairs)
        + "."
        for reason, pairs in comparison.unlike.items()
    ]
    parts = (part for _, part in comparison_parts(comparison, unlike))
    return "\n".join(part.markdown() if isinstance(part, ReportTable) else f"{part}\n" for part in parts)


def comparison_tables(comparison: ArmComparison) -> dict[str, ReportTable]:
    """The same tables by name."""
    return {name: part for name, part in comparison_parts(comparison) if isinstance(part, ReportTable)}


def comparison_parts(comparison: ArmComparison, unlike: Sequence[str] = ()) -> Iterator[tuple[str, str | ReportTable]]:
    """Tables with their names, and paragraphs, whose bold words are between `**`, without one.

    `unlike`: sentences on runs that have no difference.
    """
    known = any(interval_after(arm.runs, measure) for arm in comparison.arms for measure in comparison.measures)
    explained = (
        "Means of the runs. In brackets the 95 % interval over problems; behind ±, the standard deviation over seeds."
        if known
        else "Means, and the range where there are several runs; no intervals, since numbers by problem are missing."
    )
    after = "Each arm after its own steps" if comparison.steps is None else f"After {comparison.steps} steps"
    yield "", f"**{after}.** {explained}"
    yield "results", _results(comparison)
    runs = (run for arm in comparison.arms for run in arm.runs if run.finished and run.done < run.steps)
    if early := [f"{run.arm}-s{run.seed} after {run.done} steps" for run in runs]:
        yield "", f"Ended early, at a plateau: {', '.join(early)}."
    costs = "**Scaffolds**, as each arm was measured: means, and the range where there are several runs."
    yield from _headed(costs, "scaffolds", cost_table(comparison))
    by_part = "**By part of the problems** (how many of them), after training, with the 95 % interval over problems."
    yield from _headed(by_part, "parts", part_table(comparison))
    yield from (("", sentence) for sentence in unlike)
    yield from _difference_parts(comparison)
    short = f"of each half, where there are fewer than {2 * _AT_AN_END}"
    changes = f"**Training rollouts**, mean of the first {_AT_AN_END} steps -> of the last {_AT_AN_END} ({short})."
    yield from _headed(changes, "training_rollouts", _side_measures(comparison))


def _headed(head: str, name: str, table: ReportTable) -> Iterator[tuple[str, str | ReportTable]]:
    """Nothing without rows."""
    if table.rows:
        yield "", head
        yield name, table


def _difference_parts(comparison: ArmComparison) -> Iterator[tuple[str, str | ReportTable]]:
    measured = measure_differences(comparison)
    if claimed := [each for each in measured if each.primary]:
        what = f"{measure_name(claimed[0].measure)} against {claimed[0].reference}"
        rest = "All other differences are exploration."
        yield from _headed(f"**Primary, declared beforehand: {what}.** {rest}", "primary", _differences(claimed))
    for reference in dict.fromkeys(each.reference for each in measured):
        name = "difference_since_start" if reference is BEFORE else f"difference_from_{reference}"
        found = [each for each in measured if each.reference == reference and not each.primary]
        yield from _headed(f"**Difference from {reference_words(reference)}**", name, _differences(found))
    if measured:
        said = [*without_difference(comparison, measured), _differences_explained(measured), power_sentence(measured)]
        yield from (("", sentence) for sentence in said)
    else:
        first = comparison.arms[0].name
        pairs = f"**Difference from {first}**, by pairs of runs with the same seed."
        yield from _headed(pairs, f"difference_from_{first}", _seed_pairs(comparison))


def _results(comparison: ArmComparison) -> ReportTable:
    starts, measures = comparison.starts, comparison.measures
    rows: list[tuple[str, ...]] = []
    for start in starts:
        name = "before" if len(starts) == 1 else f"before {', '.join(start.arms)}"
        cells = (_mean_cell(start.before(m), interval_before(start.runs, m)) for m in measures)
        rows.append((name, str(len(start.runs)), *cells, "", ""))
    for arm in comparison.arms:
        runs = str(len(arm.runs)) if len(arm.runs) == arm.planned else f"{len(arm.runs)} of {arm.planned}"
        step = spread_cell(arm.over_seeds(lambda run: run.step_seconds), decimals=2)
        minutes = spread_cell(arm.over_seeds(lambda run: run.seconds / 60), decimals=1)
        cells = (_mean_cell(arm.after(m), interval_after(arm.runs, m)) for m in measures)
        rows.append((f"**{arm.name}**", runs, *cells, step, minutes))
    return ReportTable(("", "runs", *map(measure_name, measures), "s a step", "min a run"), rows)


def found_tables(results: Sequence[RunResult]) -> dict[str, ReportTable]:
    """By title, what commands found that are no training: a row for each run, a column for each number."""
    of_title: dict[str, list[tuple[str, CommandResult]]] = {}
    for result in results:
        if result.found is not None:
            of_title.setdefault(result.found.title, []).append((f"{result.arm}-s{result.seed}", result.found))
    return {title: _found_table(rows) for title, rows in of_title.items()}


def _found_table(found: Sequence[tuple[str, CommandResult]]) -> ReportTable:
    names = dict.fromkeys(name for _, each in found for name in each.numbers)
    rows = [
        (
            run,
            *(_found_cell(each.numbers.get(name)) for name in names),
            "passes" if each.passes else f"go back to {each.go_back_to}",
        )
        for run, each in found
    ]
    return ReportTable(("", *(name.replace("_", " ") for name in names), ""), rows, range(1, len(names) + 1))


def _found_cell(value: float | None) -> str:
    return f"{value:,}" if isinstance(value, int) else number(value)


def cost_table(comparison: ArmComparison) -> ReportTable:
    """What each arm's scaffold costs; no rows where all are `direct`."""
    by_arm = {arm.name: [run.costs for run in arm.runs if run.costs is not None] for arm in comparison.arms}
    known = {name: found for name, found in by_arm.items() if found}
    every = [costs for found in known.values() for costs in found]
    if not any(costs.scaffold != "direct" for costs in every):
        return ReportTable((), [])
    keys = [key for key in _COSTS if any(getattr(costs, key) is not None for costs in every)]
    k = next((k for k in ("4", "2", "1") if all(k in costs.pass_per_10k for costs in every)), "1")
    rows = [
        (
            name,
            " ".join(dict.fromkeys(costs.scaffold for costs in found)),
            f"{mean(costs.tokens for costs in found):,.0f}",
            spread_cell(SeedSpread.of(costs.pass_per_10k.get(k) for costs in found), decimals=1),
            *(spread_cell(SeedSpread.of(getattr(costs, key) for costs in found)) for key in keys),
        )
        for name, found in known.items()
    ]
    head = ("", "scaffold", "tokens a problem", f"pass@{k} per 10k tokens", *(key.replace("_", " ") for key in keys))
    return ReportTable(head, rows, range(2, len(head)))


def part_table(comparison: ArmComparison) -> ReportTable:
    """pass@k after training by part of the problems: puzzles' budgets, or data sets. No rows for a single part."""
    sizes: dict[str, set[str]] = {}
    for run in (run for arm in comparison.arms for run in arm.runs):
        for problem, part in (strata_of(run.problems_after) or {}).items():
            sizes.setdefault(part, set()).add(problem)
    ks = [measure for measure in comparison.measures if measure != STRATEGIES]
    if len(sizes) < 2 or not ks:
        return ReportTable((), [])
    k = "4" if "4" in ks else ks[-1]
    parts = sorted(sizes)
    rows = [(arm.name, *(_part_cell(arm.runs, k, part) for part in parts)) for arm in comparison.arms]
    return ReportTable((f"pass@{k}", *(f"{part} ({len(sizes[part])})" for part in parts)), rows)


def _part_cell(runs: Sequence[RunResult], k: str, part: str) -> str:
    found: list[tuple[str, float]] = []
    for run in runs:
        values, parts = problem_values(run.problems_after, k), strata_of(run.problems_after)
        if values is None or parts is None:
            return DASH
        found += [(name, value) for name, value in values.items() if parts[name] == part]
    if not found:
        return DASH
    values_alone = [value for _, value in found]
    interval = share_interval(values_alone, clusters=[name for name, _ in found])
    return f"{mean(values_alone):.3f} {interval_text(interval)}"


_COSTS = ("duplicates", "followed", "surface_diversity", "algorithmic_diversity")
_AT_AN_END = 10  # steps at a curve's beginning and end, at most half of them


def _side_measures(comparison: ArmComparison) -> ReportTable:
    cells = {name: [_change_cell(arm, name) for arm in comparison.arms] for name in SIDE_MEASURES}
    known = {name: column for name, column in cells.items() if set(column) != {DASH}}
    rows = zip((arm.name for arm in comparison.arms), *known.values(), strict=True) if known else ()
    return ReportTable(("", *(SIDE_MEASURES[name] for name in known)), list(rows))


def _change_cell(arm: Arm, curve: str) -> str:
    """`41.2 -> 38.0 (1 of 2 runs)`: means over the runs that have the curve."""
    known = [[value for _, value in run.curves[curve]] for run in arm.runs if run.curves.get(curve)]
    if not known:
        return DASH
    ends = [(values, min(_AT_AN_END, max(1, len(values) // 2))) for values in known]
    first = mean(mean(values[:count]) for values, count in ends)
    last = mean(mean(values[-count:]) for values, count in ends)
    some = f" ({len(known)} of {len(arm.runs)} runs)" if len(known) < len(arm.runs) else ""
    return f"{first:.3g} -> {last:.3g}{some}"


def _differences(measured: Sequence[MeasuredDifference]) -> ReportTable:
    head = (
        *("", "", "sign by seed", "difference", "95 %, seeds and problems", "p", "Holm", "95 %, these seeds", "p", "±"),
    )
    rows = [_difference_row(each) for each in measured]
    return ReportTable(head, rows, range(2, len(head)))


def _seed_pairs(comparison: ArmComparison) -> ReportTable:
    # for runs without numbers by problem
    measures = comparison.measures
    rows = [
        (
            arm.name,
            str(len(pairs)),
            *(spread_cell(comparison.difference(arm, measure), sign="+") for measure in measures),
        )
        for arm in comparison.arms[1:]
        if (pairs := comparison.pairs(arm))
    ]
    return ReportTable(("", "pairs", *map(measure_name, measures)), rows)


_MUCH = 0.2  # share of problems in common below which they hardly matter


def _difference_row(each: MeasuredDifference) -> tuple[str, ...]:
    over, these = each.all_seeds, each.these_seeds
    return (
        each.arm,
        measure_name(each.measure),
        " ".join(_sign(value) for value in each.paired.seed_means),
        f"{each.paired.mean:+.3f}",
        interval_text(over.interval, "+") if over else DASH,
        _p_text(over.p_value) if over else DASH,
        _p_text(each.holm),
        interval_text(these.interval, "+"),
        _p_text(these.p_value),
        DASH if each.paired.seed_spread is None else f"{each.paired.seed_spread:.3f}",
    )


def _sign(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{value:+}"[0]


def _differences_explained(measured: Sequence[MeasuredDifference]) -> str:
    seeds = {len(each.paired.by_seed) for each in measured}
    crossed = {len(each.paired.by_seed) for each in measured if each.paired.crossed and each.all_seeds}
    drawn = (
        " Problems are drawn within parts of fixed shares (budgets, data sets)." if measured[0].paired.strata else ""
    )
    few = "".join(
        f" With {count} seeds the first interval held the truth in {share} % of simulations."
        for count, share in ((2, "86 to 95"), (3, "92 to 95"))
        if count in crossed
    )
    careful = ", by Behrens and Fisher's test, since with few seeds the t is too sure far out" if crossed else ""
    only = " One seed says nothing of others." if 1 in seeds else ""
    explored = sum(not each.primary for each in measured)
    apart = f" but the {len(measured) - explored} primary, a family apart" if explored < len(measured) else ""
    if missing := len({name for each in measured for name in each.left_out}):
        only += f" Left out of a difference: problems whose tests could not be run in one of its runs ({missing} here)."
    shared = max(each.shared for each in measured)
    if shared > _MUCH:
        only += f" {shared:.0%} of the problems are those of several seeds, which makes the first interval too narrow."
    return (
        "The first interval and p are for other seeds and other problems (t, Satterthwaite's degrees of freedom); "
        f"Holm's p is that one, or with one seed the second, adjusted for all {explored} differences "
        f"here{careful}{apart}. The second interval and p are for these runs and other problems (t; random signs). "
        f"± is the standard deviation of the seeds' differences.{drawn}{few}{only} An interval that holds 0 does not "
        "show that there is no difference."
    )


def _mean_cell(spread: SeedSpread | None, interval: ConfidenceInterval | None) -> str:
    """Mean, interval over problems, and the seeds' deviation."""
    if spread is None or interval is None:
        return spread_cell(spread)
    deviation = f" ±{spread.deviation:.3f}" if spread.count > 1 else ""
    return f"{spread.mean:.3f} {interval_text(interval)}{deviation}"


def _p_text(p_value: float) -> str:
    """Two figures below .1; never 0."""
    return "< .0001" if p_value < 0.0001 else f"{p_value:.2g}" if p_value < 0.1 else f"{p_value:.2f}"


def spread_cell(spread: SeedSpread | None, sign: str = "", decimals: int = 3) -> str:
    """Mean, and the range of several values."""
    if spread is None:
        return DASH
    mean, low, high = (f"{value:{sign}.{decimals}f}" for value in (spread.mean, spread.low, spread.high))
    return mean if spread.count == 1 else f"{mean} ({low} to {high})"
